/* The parts of a heat map's page, as tools/embed_text.py puts them into the command. */
#ifndef CLATTN_TOOL_HEATMAP_FILES_H
#define CLATTN_TOOL_HEATMAP_FILES_H

extern const char heatmap_page_html[];
extern const char heatmap_style_css[];
extern const char heatmap_script_js[];

#endif
