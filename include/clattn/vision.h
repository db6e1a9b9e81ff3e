/** @file
 * The shapes of published models of pictures.
 *
 * They are stacks (transformer.h) whose input is CLATTN_STACK_INPUT_PICTURES, or tokens for CLIP's texts. A preset is a
 * start: the caller may change every field, for example the number of layers.
 *
 *     clattn_vision_preset          fills in a description of one stage or several, and says which names the weights have
 *     clattn_transformer_create     loads the weights: of Hugging Face's files by this format, of timm's by another
 *     clattn_encoder_plan_create    for the size of the pictures, `clattn_encoder_desc.picture`
 *
 * The calls, whose results a program checks:
 *
 *     clattn_vision_preset(CLATTN_VISION_DINOV2_SMALL_14, &desc, stages, &source.format);    stages: of CLATTN_VISION_STAGES
 *     source.lookup = clattn_safetensors_lookup;                                 source: CLATTN_WEIGHT_SOURCE_INIT
 *     source.user = file;
 *     clattn_transformer_create(context, &desc, &source, &model);
 *     encoder.batch = 1;                                                         encoder: CLATTN_ENCODER_DESC_INIT
 *     encoder.picture = clattn_layout_nhwc(CLATTN_DTYPE_F32, 1, 3, 224, 308);    multiples of 14
 *     encoder.pooling = CLATTN_POOLING_FIRST;
 *     clattn_encoder_plan_create(model, &encoder, NULL, &plan);
 *     args.input = clattn_binding_buffer(pixels, 0);                             args: CLATTN_ENCODER_ARGS_INIT
 *     args.pooled = clattn_binding_buffer(vector, 0);                            384 float32
 *     clattn_encoder_enqueue(plan, queue, &args, 0, NULL, NULL);
 *
 * A preset is what Hugging Face's weights want. Others differ:
 *
 *     DINOv2 with registers     patches.registers = 4, patches.antialias = 1
 *     ViT by timm               CLATTN_NAME_FORMAT_TIMM_VIT, epsilon = 1e-6, patches.antialias = 1
 *     Swin by timm              CLATTN_NAME_FORMAT_TIMM_SWIN
 *     SwinIR of one channel     patches.channels = 1
 *
 * Values of the pixels: ViT expects (v − 0.5) / 0.5 of v in 0 ... 1; CLIP and DINOv2 subtract a mean from each channel and
 * divide by a deviation, which the models' preprocessor_config.json has. That is the application's to do. SwinIR of three
 * channels expects v minus 0.4488, 0.4371 and 0.4040 (red, green, blue), and its result lacks the same; JPEG's model, with all of
 * this, 255 times that.
 *
 * What is made of a picture, with clattn_encoder_desc.pooling:
 *
 *     ViT, DINO       CLATTN_POOLING_FIRST: the class token (the output has it and the patches, all normalised by the final
 *                     norm; of CLIP, too, where Hugging Face's last_hidden_state is not)
 *     SAM             none: the output is (batch, 64 * 64, 256), by patches (Hugging Face has the columns first)
 *     Swin            CLATTN_POOLING_MEAN; the output is the last stage's, normalised
 *     CLIP            CLATTN_POOLING_FIRST of pictures, CLATTN_POOLING_LAST of texts, whose lengths end with the end token;
 *                     with pooled_unit 1, the cosine of a picture and a text is the product of their vectors
 *     SwinIR          none: the output is a picture, `clattn_encoder_desc.restored`; pictures may have any size
 */
#ifndef CLATTN_VISION_H
#define CLATTN_VISION_H

#include "transformer.h"

CLATTN_BEGIN_DECLS

/** Published models. The number at the end is the height and width of a patch. */
typedef enum clattn_vision {
    CLATTN_VISION_VIT_TINY_16 = 0,  /**< ViT (Dosovitskiy et al. 2020), for 224 x 224 pixels: L 12, d_model 192 */
    CLATTN_VISION_VIT_SMALL_16 = 1, /**< L 12, d_model 384, 6 heads */
    CLATTN_VISION_VIT_BASE_16 = 2,  /**< L 12, d_model 768, 12 heads */
    CLATTN_VISION_VIT_LARGE_16 = 3, /**< L 24, d_model 1024, 16 heads */
    CLATTN_VISION_DINOV2_SMALL_14 =
        4, /**< DINOv2 (Oquab et al. 2023), learned with 518 x 518 pixels: L 12, d_model 384, 6 heads */
    CLATTN_VISION_DINOV2_BASE_14 = 5,      /**< L 12, d_model 768, 12 heads */
    CLATTN_VISION_DINOV2_LARGE_14 = 6,     /**< L 24, d_model 1024, 16 heads */
    CLATTN_VISION_DINOV2_GIANT_14 = 7,     /**< L 40, d_model 1536, 24 heads, gated by SiLU */
    CLATTN_VISION_CLIP_BASE_32 = 8,        /**< CLIP (Radford et al. 2021), pictures of 224 x 224 pixels */
    CLATTN_VISION_CLIP_BASE_32_TEXT = 9,   /**< its texts of at most 77 tokens, of which 49408 exist */
    CLATTN_VISION_CLIP_BASE_16 = 10,       /**< pictures */
    CLATTN_VISION_CLIP_BASE_16_TEXT = 11,  /**< texts */
    CLATTN_VISION_CLIP_LARGE_14 = 12,      /**< pictures */
    CLATTN_VISION_CLIP_LARGE_14_TEXT = 13, /**< texts */
    CLATTN_VISION_SWIN_TINY = 14,  /**< Swin (Liu et al. 2021), windows of 7 x 7, patches of 4 x 4, four stages */
    CLATTN_VISION_SWIN_SMALL = 15, /**< 2, 2, 18 and 2 layers; d_model 96 and twice as much from stage to stage */
    CLATTN_VISION_SWIN_BASE = 16,  /**< the same with d_model 128 */
    CLATTN_VISION_SWIN_LARGE = 17, /**< the same with d_model 192 */
    CLATTN_VISION_SAM_BASE = 18,  /**< SAM's encoder (Kirillov et al. 2023) of 1024 x 1024 pixels, patches of 16 x 16 */
    CLATTN_VISION_SAM_LARGE = 19, /**< L 24, d_model 1024, 16 heads */
    CLATTN_VISION_SAM_HUGE = 20,  /**< L 32, d_model 1280, 16 heads */

    /** SwinIR (Liang et al. 2021), whose output is a picture four times as high and wide: six stages of six layers, d_model 180,
     * windows of 8 x 8. Set the last stage's restoration.factor for weights of another. */
    CLATTN_VISION_SWINIR_CLASSICAL = 21,
    CLATTN_VISION_SWINIR_LIGHTWEIGHT = 22, /**< four stages, d_model 60 */
    CLATTN_VISION_SWINIR_REAL = 23,        /**< for photographs as they are: six stages, d_model 180 */
    CLATTN_VISION_SWINIR_REAL_LARGE = 24,  /**< nine stages, d_model 240 */
    CLATTN_VISION_SWINIR_DENOISE = 25,     /**< a picture of the same size without its noise */
    CLATTN_VISION_SWINIR_JPEG = 26,        /**< a picture of the same size without JPEG's blocks, windows of 7 x 7 */
    CLATTN_VISION_DINOV3_SMALL_16 = 27, /**< DINOv3 (Siméoni et al. 2025), four registers: L 12, d_model 384, 6 heads */
    CLATTN_VISION_DINOV3_BASE_16 = 28,  /**< L 12, d_model 768, 12 heads */
    CLATTN_VISION_DINOV3_LARGE_16 = 29, /**< L 24, d_model 1024, 16 heads */
    CLATTN_VISION_FORCE_32BIT = 0x7fffffff
} clattn_vision;

/** The stages that a preset may have. */
#define CLATTN_VISION_STAGES 9

/** Fills *desc and the stages with the shape of the published model that `model` names, and *format, which may be NULL, with
 * the names that its weights have in Hugging Face's files.
 *
 * The caller owns all structs and may change them. desc->encoder points to `encoder`, an array of CLATTN_VISION_STAGES
 * stacks, and the `next` of each stage to the one behind it. Models other than Swin and SwinIR have one stage. Thread-safe.
 *
 * @return INVALID_ARGUMENT: desc or encoder is NULL, or there is no such model. */
CLATTN_API clattn_status clattn_vision_preset(clattn_vision model, clattn_transformer_desc *desc,
                                              clattn_stack_desc *encoder, clattn_name_format *format);

CLATTN_END_DECLS

#endif
