"""The provider for ONNX Runtime on models that PyTorch exports, with random weights, against the CPU provider.

    CLATTN_ONNXRUNTIME=LIBRARY python3 test_exports.py

Needs what test_provider.py does, and PyPI's torch, onnxscript and transformers. CLATTN_MINILM is the folder of all-MiniLM-L6-v2."""

import os
import pathlib
import tempfile
import unittest
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from test_provider import Comparison, groups, plain

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
PICTURE = {"image_size": 32, "patch_size": 8}
WHISPER = {
    "vocab_size": 100,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "num_mel_bins": 16,
    "max_source_positions": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


class Named(torch.nn.Module):
    """A model whose inputs are given by place, and whose only output is what it is made for."""

    def __init__(self, model, *names, **options):
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *inputs):
        result = self.model(**dict(zip(self.names, inputs, strict=True)), **self.options)
        return result.logits if "logits" in result else result.last_hidden_state


class Cached(torch.nn.Module):
    """A language model with the keys and values of earlier positions as inputs, and of all as outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, mask, *past):
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True)
        return result.logits, *(each for layer in result.past_key_values.layers for each in (layer.keys, layer.values))


def tokens(batch, length):
    return torch.randint(0, 100, (batch, length))


def models(attention):
    """Names, models, inputs, and how many chains each may be."""
    how = {"attn_implementation": attention}
    gpt2 = {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, **how}
    llama = {"vocab_size": 100, "num_key_value_heads": 2, **SMALL, **how}
    picture = torch.randn(2, 3, 32, 32)
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=100, **SMALL, **how))
    yield "BERT", Named(bert, "input_ids", "attention_mask"), (tokens(2, 9), torch.ones(2, 9, dtype=torch.int64)), 1
    yield (
        "GPT-2",
        Named(transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2)), "input_ids", use_cache=False),
        (tokens(2, 9),),
        1,
    )
    yield (
        "Llama",
        Named(transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama)), "input_ids", use_cache=False),
        (tokens(2, 9),),
        1,
    )
    for name, model, heads in (
        ("GPT-2 with a cache", transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2)), 4),
        ("Llama with a cache", transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama)), 2),
    ):
        past = [torch.randn(2, heads, 5, 16) for _ in range(4)]
        yield name, Cached(model), (tokens(2, 3), torch.ones(2, 8, dtype=torch.int64), *past), 1
    vit = transformers.ViTModel(transformers.ViTConfig(**SMALL, **PICTURE, **how), add_pooling_layer=False)
    yield "ViT", Named(vit, "pixel_values"), (picture,), 1
    clip = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**SMALL, **PICTURE, **how))
    yield "CLIP's pictures", Named(clip, "pixel_values"), (picture,), 1
    clip = transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=100, **SMALL, **how))
    yield "CLIP's texts", Named(clip, "input_ids"), (tokens(2, 9),), 1
    whisper = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**WHISPER, **how))
    yield "Whisper's encoder", Named(whisper.model.encoder, "input_features"), (torch.randn(2, 16, 100),), 1
    both = Named(whisper, "input_features", "decoder_input_ids", use_cache=False)
    yield "Whisper", both, (torch.randn(2, 16, 100), tokens(2, 7)), 2
    if attention == "eager":  # PyTorch exports no other
        swin = transformers.SwinConfig(
            image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4
        )
        yield "Swin", Named(transformers.SwinModel(swin, add_pooling_layer=False), "pixel_values"), (picture,), 1
        sam = transformers.SamVisionConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=64,
            patch_size=8,
            window_size=3,
            global_attn_indexes=[1],
            mlp_dim=128,
            output_channels=32,
            **how,
        )
        yield "SAM's encoder", Named(transformers.SamVisionModel(sam), "pixel_values"), (torch.randn(1, 3, 64, 64),), 1


def export(model, inputs, opset, new, **options):
    """The model as ONNX, by one of PyTorch's exporters."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"), torch.no_grad():
        file = pathlib.Path(folder, "model.onnx")
        torch.onnx.export(model.eval(), inputs, file, opset_version=opset, dynamo=new, verbose=False, **options)
        return onnx.load(file).SerializeToString()


def dynamic(inputs):
    """Which extents of a model's inputs change: the batch, and the length of tokens and of masks of these."""
    auto = torch.export.Dim.AUTO
    return {"inputs": tuple({0: auto} if each.is_floating_point() else {0: auto, 1: auto} for each in inputs)}


def larger(array):
    """An input of a larger batch, and of tokens more."""
    more = torch.cat([array, array[:1]])
    return more if array.is_floating_point() else torch.cat([more, more[:, :2]], 1)


class Exports(Comparison):
    def test_models(self):
        """Models of Transformers: nearly whole, in one chain."""
        ran = 0
        for attention in ("eager", "sdpa"):
            for opset, new in ((17, False), (18, True), (23, True)):
                for name, model, inputs, chains in models(attention):
                    if not new and name.startswith(("GPT-2", "Llama", "Whisper")) and name != "Whisper's encoder":
                        continue  # the older exporter lacks what makes their masks
                    for each in model.parameters():
                        torch.nn.init.normal_(each, std=0.1)
                    # Those with a cache, and what is made of windows, have one shape.
                    any_shape = opset == 18 and "cache" not in name and name not in ("Swin", "SAM's encoder")
                    with self.subTest(name, attention=attention, opset=opset, new=new):
                        content = export(
                            model, inputs, opset, new, **({"dynamic_shapes": dynamic(inputs)} if any_shape else {})
                        )
                        (taken, count, found), _ = groups(content)
                        self.assertIn(found, range(1, chains + 1))
                        self.assertGreater(taken, (0.4 if any_shape else 0.8 if name == "SAM's encoder" else 0.85) * count)
                        names = [each.name for each in plain(content).get_inputs()]
                        cases = [inputs, [larger(each) for each in inputs]] if any_shape else [inputs]
                        self.compare(
                            content, *(dict(zip(names, (each.numpy() for each in case), strict=True)) for case in cases)
                        )
                        ran += 1
        self.assertGreater(ran, 55)

    @unittest.skipUnless("CLATTN_MINILM" in os.environ, "no MiniLM here")
    def test_minilm(self):
        """all-MiniLM-L6-v2 with its own weights, on batches of several lengths."""
        bert = transformers.BertModel.from_pretrained(os.environ["CLATTN_MINILM"], add_pooling_layer=False)
        model, axes = Named(bert, "input_ids", "attention_mask"), {name: {0: "batch", 1: "length"} for name in ("ids", "mask")}
        inputs = (tokens(2, 9), torch.ones(2, 9, dtype=torch.int64))
        content = export(model, inputs, 17, False, input_names=["ids", "mask"], dynamic_axes=axes)
        (taken, count, chains), _ = groups(content)
        self.assertEqual(chains, 1)
        self.assertGreater(taken, 0.75 * count)  # what makes the mask, and what is before it, are left
        cases = []
        for batch, length in ((2, 9), (1, 128), (3, 40)):
            mask = np.arange(length) < self.random.integers(1, length + 1, (batch, 1))
            ids = self.random.integers(0, 30000, (batch, length))
            cases.append({"ids": ids, "mask": mask.astype(np.int64)})
        self.compare(content, *cases)

    def test_layers(self):
        """Attention as PyTorch's exporter writes it is taken, written out or by scaled_dot_product_attention."""

        def by_hand(q, k, v, mask):
            return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask, -1) @ v

        def masked(q, k, v, mask):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        def causal(q, k, v, mask):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) + 0 * mask.sum()

        class Layer(torch.nn.Module):
            def __init__(self, attend):
                super().__init__()
                self.attend, self.projections = attend, torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

            def forward(self, x, mask):
                q, k, v = (each(x).unflatten(2, (4, 16)).transpose(1, 2) for each in self.projections[:3])
                return self.projections[3](self.attend(q, k, v, mask).transpose(1, 2).flatten(2))

        inputs, axes = (torch.randn(2, 9, 64), torch.randn(2, 1, 1, 9)), {"x": {0: "b", 1: "s"}, "mask": {0: "b", 3: "s"}}
        for attend in (by_hand, masked, causal):
            for dynamic in (None, axes):
                content = export(Layer(attend), inputs, 17, False, input_names=["x", "mask"], dynamic_axes=dynamic)
                with self.subTest(attend.__name__, dynamic=bool(dynamic)):
                    self.assertEqual(groups(content)[0][2], 1)
                    self.compare(content, {"x": inputs[0].numpy(), "mask": inputs[1].numpy()})


if __name__ == "__main__":
    onnxruntime.register_execution_provider_library("clattn", os.environ["CLATTN_ONNXRUNTIME"])
    unittest.main()
