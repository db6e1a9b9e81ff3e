#!/usr/bin/env python3
"""Writes cases.safetensors and cases.h from ONNX's own node tests.  Needs PyPI's onnx of exactly the version below.

The tensors are named CASE/FORMAL, FORMAL being the name that the operator's schema gives the input or output."""
import json
import os
import sys

import onnx
from onnx import defs, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

VERSION = "1.23.2"
COUNTS = {"Attention": 93, "Gelu": 4, "LayerNormalization": 19, "LeakyRelu": 3, "RMSNormalization": 19,
          "RotaryEmbedding": 8, "Softmax": 7, "Swish": 1}
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64", "int32": "I32",
          "bool": "BOOL", "uint8": "U8"}
HERE = os.path.dirname(os.path.abspath(__file__))


def cases():
    for case in collect_testcases(None):
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in COUNTS and not case.name.endswith("_expanded"):
            yield case, nodes[0], case.model.opset_import[0].version


def formal_names(actual, formals):
    """The schema's names of the tensors that are there; the name of an optional tensor that is left out is empty."""
    return [formals[i].name for i, name in enumerate(actual) if name]


def attributes(node):
    texts = []
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        texts.append("%s=%s" % (attribute.name, value.decode() if isinstance(value, bytes) else repr(value)))
    return " ".join(texts)


def array_of(tensor):
    return numpy_helper.to_array(tensor) if isinstance(tensor, onnx.TensorProto) else tensor


def write_tensors(path, tensors):
    header, offset = {}, 0
    for name, array in tensors:
        size = array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for _, array in tensors:
            out.write(array.tobytes())


def main():
    if onnx.__version__ != VERSION:
        sys.exit("generate.py wants onnx %s, this is %s" % (VERSION, onnx.__version__))
    tensors, rows, counts = [], [], dict.fromkeys(COUNTS, 0)
    for case, node, opset in sorted(cases(), key=lambda c: (c[1].op_type, c[0].name)):
        schema = defs.get_schema(node.op_type, opset)
        counts[node.op_type] += 1
        (inputs, outputs), = case.data_sets
        for names, arrays in ((formal_names(node.input, schema.inputs), inputs),
                              (formal_names(node.output, schema.outputs), outputs)):
            assert len(names) == len(arrays)
            tensors += [("%s/%s" % (case.name, name), array_of(array)) for name, array in zip(names, arrays)]
        rows.append('    {"%s", "%s", %d, "%s", %r, %r},\n' % (node.op_type, case.name, opset, attributes(node),
                                                              case.rtol, case.atol))
    assert counts == COUNTS, counts
    write_tensors(os.path.join(HERE, "cases.safetensors"), tensors)
    with open(os.path.join(HERE, "cases.h"), "w", encoding="ascii") as out:
        out.write("/* Written by generate.py: ONNX's node tests, whose tensors cases.safetensors holds. */\n")
        out.write("/* clang-format off */\n")
        out.write("#ifndef TESTS_ONNX_CASES_H\n#define TESTS_ONNX_CASES_H\n\n")
        out.write("const onnx_case onnx_cases[] = {\n")
        out.writelines(rows)
        out.write("};\n\n#endif\n")


if __name__ == "__main__":
    main()
