/* clattn, the attention library for OpenCL: everything but the file readers of clattn/io.h. */
#ifndef CLATTN_CLATTN_H
#define CLATTN_CLATTN_H

#include "activation.h"
#include "attention.h"
#include "context.h"
#include "decoder.h"
#include "dtype.h"
#include "embedding.h"
#include "export.h"
#include "feed_forward.h"
#include "generate.h"
#include "image.h"
#include "layout.h"
#include "matmul.h"
#include "mha.h"
#include "kv_append.h"
#include "merge.h"
#include "norm.h"
#include "neighbourhood.h"
#include "plan.h"
#include "rope.h"
#include "softmax.h"
#include "status.h"
#include "tensor.h"
#include "transformer.h"
#include "tuning.h"
#include "version.h"
#include "weights.h"

#endif
