/* What GEGL looks for when it opens the plug-in: the list of its operations. */
#include <gegl-plugin.h>

void gegl_op_clattn_denoise_register_type(GTypeModule *module);
void gegl_op_clattn_upscale_register_type(GTypeModule *module);
G_MODULE_EXPORT const GeglModuleInfo *gegl_module_query(GTypeModule *module);
G_MODULE_EXPORT gboolean gegl_module_register(GTypeModule *module);

G_MODULE_EXPORT const GeglModuleInfo *gegl_module_query(GTypeModule *module)
{
    static const GeglModuleInfo info = {GEGL_MODULE_ABI_VERSION};
    (void)module;
    return &info;
}

G_MODULE_EXPORT gboolean gegl_module_register(GTypeModule *module)
{
    gegl_op_clattn_denoise_register_type(module);
    gegl_op_clattn_upscale_register_type(module);
    return TRUE;
}
