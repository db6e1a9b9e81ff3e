#!/usr/bin/env python3
"""clattn embed-image from outside: small models of random numbers under transformers' and timm's names against NumPy's
float64 (small/vision.py), every kind of PNG, folders, hostile files.

    CLATTN=build/src/clattn python3 tests/tool/test_command_embed_image.py [-k PATTERN ...]

The device is whatever the environment chooses.  Needs NumPy and no more."""
import json
import os
import shutil

import numpy as np

import png_pictures as png
from command_support import QUICK, CommandTest, main, slow, write_safetensors
from heatmap_page import MapTest
from small.vision import FAMILIES, Model


class ImageTest(CommandTest):
    def picture(self, height, width, channels=3, dtype=np.uint8):
        """Waves with an edge and noise."""
        y, x = np.mgrid[:height, :width]
        phase = self.random.uniform(1, 9, 3)
        base = 0.5 + 0.3 * np.sin(x / phase[0])[..., None] * np.cos(y[..., None] / phase[1] + np.arange(channels)) + 0.1 * (x > y)[..., None]
        noisy = base + self.random.normal(0, 0.05, (height, width, channels))
        levels = np.iinfo(dtype).max
        return np.clip(np.rint(noisy * levels), 0, levels).astype(dtype)

    def make(self, family, prefix="", processor=False, **changed):
        self.model = Model(self.random, family, **changed)
        if processor:
            self.model.write_processor()
        self.folder_of_model = self.path("model")
        shutil.rmtree(self.folder_of_model, ignore_errors=True)
        self.model.write(self.folder_of_model, prefix)

    def save_pictures(self, pictures, folder="pictures"):
        os.makedirs(self.path(folder), exist_ok=True)
        return [self.write("%s/%02d.png" % (folder, i), png.encode(each)) for i, each in enumerate(pictures)]

    def embed(self, paths, *options):
        result = self.succeed("embed-image", self.folder_of_model, *paths, *options)
        self.assertEqual(result.errors, [])
        return np.array([[float(x) for x in line.split(" ")] for line in result.out.splitlines()])

    def near(self, found, pictures):
        """Fails unless these are the pictures' vectors.  A picture of another size than the model's is resized in float32,
        where a level may be rounded the other way."""
        self.assertEqual(len(found), len(pictures))
        for vector, pixels in zip(found, pictures):
            wanted = self.model.vector(pixels)
            same = pixels.shape[:2] == tuple(self.model.spec["size"]) == tuple(self.model.spec["resized"][:1]) * 2
            self.assertEqual(vector.shape, wanted.shape)
            self.assertLessEqual(np.max(np.abs(vector - wanted)), 1e-5 if same else 1e-3)

    def agree(self, *shapes):
        pictures = [self.picture(*shape) for shape in shapes]
        self.near(self.embed(self.save_pictures(pictures)), pictures)


class Results(ImageTest):
    def test_vit(self):
        self.make("vit")
        self.agree((32, 32), (50, 41), (9, 70))

    def test_dinov2(self):
        """Without a file on pictures they become 256 / 224 of what is cut, 16 patches wide: another grid than the table's."""
        self.make("dinov2")
        self.agree((60, 90), (200, 133))

    @slow
    def test_registers(self):
        self.make("dinov2_with_registers", processor=True, size=(40, 24), resized=(45,))
        self.agree((60, 90), (45, 45))

    @slow
    def test_swiglu(self):
        self.make("dinov2", gated=True, d_ff=40, processor=True, size=(24, 24), resized=(24,))
        self.agree((24, 24), (33, 60))

    def test_clip(self):
        self.make("clip")
        self.agree((32, 32), (77, 35))

    @slow
    def test_clip_by_another_processor(self):
        self.make("clip", processor=True, size=(48, 32), resized=(40,), cubic=False, mean=(0.1, 0.2, 0.3),
                  deviation=(0.7, 0.6, 0.5))
        self.agree((32, 64), (64, 32))

    def test_timm(self):
        self.make("timm")
        self.agree((36, 36), (50, 37), (61, 140))

    @slow
    def test_timm_by_the_presence_of_tensors(self):
        variants = (dict(token=False, token_position=False, pooling="patches"),
                    dict(token=False, token_position=False, registers=4, pooling="patches", norm_after=True, scales=True),
                    dict(registers=4, token_position=False, head_norms=True),
                    dict(pre_norm=True, patch_bias=False, epsilon=1e-5, activation="quick_gelu"),
                    dict(gated=True, bias=False, pooling="patches"),
                    dict(grid=(2, 3), shortest=False, resized=(40, 60), size=(16, 24), cubic=False),
                    dict(grid=(5, 5), activation="gelu_tanh", shortest=False, resized=(32, 32)))
        for changed in variants[:5] if QUICK else variants:
            with self.subTest(**changed):
                self.make("timm", **changed)
                self.agree((41, 50), (32, 32))

    @slow
    def test_timm_sizes_without_arguments(self):
        """A config.json with the architecture alone: heads of 64 columns, timm's defaults."""
        self.make("timm", d_model=128, patch=16, grid=(14, 14), size=(224, 224), resized=(256,))
        self.model.config = {"architecture": "vit_of_a_test"}
        self.model.write(self.folder_of_model)
        self.agree((300, 280))

    @slow
    def test_prefixes_and_heads_of_other_models(self):
        for family, prefix in (("vit", "vit."), ("dinov2", "dinov2."), ("timm", "")):
            with self.subTest(family):
                self.make(family, prefix)
                tensors = {prefix + name: tensor for name, tensor in self.model.tensors.items()}
                head = "head.weight" if family == "timm" else "classifier.weight"
                tensors.update({head: self.normal(10, 32)})
                write_safetensors(os.path.join(self.folder_of_model, "model.safetensors"), tensors)
                self.agree((40, 44))
                report = self.succeed("embed-image", self.folder_of_model, self.save_pictures([self.picture(32, 32)])[0],
                                      "--json").json()
                self.assertIn(head, report["unused_tensors"])
                self.assertFalse(set(report["unused_tensors"]) & set(prefix + name for name in self.model.tensors)
                                 - {prefix + "embeddings.mask_token"})

    @slow
    def test_sizes_that_config_leaves_out(self):
        for family in ("vit", "clip"):
            self.make(family)
            config = self.model.config.get("vision_config", self.model.config)
            for name in ("hidden_size", "num_hidden_layers", "image_size", "patch_size", "num_channels", "intermediate_size",
                         "layer_norm_eps", "hidden_act"):
                del config[name]
            self.model.write(self.folder_of_model)
            self.agree((32, 32), (33, 40))

    @slow
    def test_a_cut_larger_than_the_picture_is_black_outside(self):
        self.make("clip", processor=True, size=(40, 56), resized=(31,))
        self.agree((31, 31), (50, 70))

    @slow
    def test_older_processor_files(self):
        for family, crops in (("vit", False), ("clip", True)):
            self.make(family, processor=True)
            self.model.processor.update(size=32)
            del self.model.processor["do_center_crop"]
            if crops:
                self.model.processor.update(crop_size=32)
            self.model.write(self.folder_of_model)
            self.agree((40, 60))

    def test_kinds_of_png(self):
        self.make("vit")
        pictures = [self.picture(32, 32, channels, dtype) for channels in (1, 2, 3, 4) for dtype in (np.uint8, np.uint16)]
        palette = self.random.integers(0, 256, (16, 3)).astype(np.uint8)
        index = self.random.integers(0, 16, (32, 32, 1)).astype(np.uint8)
        paths = self.save_pictures(pictures)
        chunk = png.chunk(b"PLTE", palette.tobytes()) + png.chunk(b"tRNS", bytes(range(0, 160, 10)))
        paths.append(self.write("palette.png", png.encode(index, chunk, 4, 3)))
        self.near(self.embed(paths), pictures + [palette[index[..., 0]]])

    def test_many_pictures(self):
        """More than a batch, which is of 2048 positions, and the last batch is not full."""
        self.make("vit", d_model=32, grid=(16, 16), size=(128, 128), resized=(128, 128), layers=1)
        pictures = [self.picture(128, 128) for _ in range(3)]
        found = self.embed(self.save_pictures(pictures) * 5)
        self.near(found, pictures * 5)

    def test_file(self):
        self.make("vit")
        pictures = [self.picture(32, 32) for _ in range(2)]
        paths = self.save_pictures(pictures)
        result = self.succeed("embed-image", self.folder_of_model, *paths, "-o", self.path("out.npy"))
        self.assertEqual(result.out, "")
        self.near(np.load(self.path("out.npy")), pictures)
        report = self.succeed("embed-image", self.folder_of_model, *paths, "-o", self.path("out.npy"), "--json").json()
        self.assertNotIn("embeddings", report)

    def test_report(self):
        self.make("clip")
        pictures = [self.picture(32, 32), self.picture(40, 33)]
        report = self.succeed("embed-image", self.folder_of_model, *self.save_pictures(pictures), "--json", "--repeat", 2).json()
        self.near(np.array(report["embeddings"]), pictures)
        self.assertEqual((report["size"], report["pixels"], report["pictures"], report["runs"], report["dtype"]),
                         (24, [32, 32], 2, 2, "float32"))
        for key in ("device", "platform", "solver"):
            self.assertTrue(report[key])

    @slow
    def test_16_bits(self):
        self.make("vit")
        pictures = [self.picture(32, 32) for _ in range(3)]
        paths = self.save_pictures(pictures)
        for dtype, least in (("bf16", 0.999), ("f16", 0.99999))[:1 if QUICK else 2]:
            for found, pixels in zip(self.embed(paths, "--dtype", dtype), pictures):
                self.assertGreaterEqual(found @ self.model.vector(pixels), least)
                self.assertGreater(np.max(np.abs(found - self.model.vector(pixels))), 1e-5)

    def test_solver_by_name(self):
        self.make("vit")
        pictures = [self.picture(32, 32)]
        paths = self.save_pictures(pictures)
        self.near(self.embed(paths, "--solver", "generic"), pictures)
        self.refuse(2, "embed-image", self.folder_of_model, *paths, "--solver", "nobody", saying="nobody")


class Search(ImageTest):
    def setUp(self):
        super().setUp()
        self.make("vit")
        self.pictures = [self.picture(32, 32) for _ in range(9)]
        self.paths = self.save_pictures(self.pictures)
        self.write("pictures/notes.txt", "no picture")
        os.makedirs(self.path("pictures/more.png"))
        self.query = self.picture(32, 32)
        self.query_path = self.write("query.png", png.encode(self.query))
        self.scores = np.array([self.model.vector(each) for each in self.pictures]) @ self.model.vector(self.query)

    def search(self, *options, query=None):
        return self.run_clattn("embed-image", self.folder_of_model, "--search", self.path("pictures"), query or self.query_path,
                               *options)

    def test_order(self):
        result = self.search()
        self.assertEqual((result.status, result.errors), (0, []), result)
        lines = [line.split("\t") for line in result.out.splitlines()]
        order = np.argsort(-self.scores, kind="stable")
        self.assertEqual([path for _, path in lines], [self.paths[i] for i in order])
        np.testing.assert_allclose([float(score) for score, _ in lines], self.scores[order], atol=1e-5)

    def test_top_and_report(self):
        report = self.search("--top", 2, "--json").json()
        best = np.argsort(-self.scores, kind="stable")[:2]
        self.assertEqual([match["picture"] for match in report["matches"]], [self.paths[i] for i in best])
        np.testing.assert_allclose([match["score"] for match in report["matches"]], self.scores[best], atol=1e-5)
        self.assertEqual((report["pictures"], report["left_out"]), (10, 0))

    def test_itself_is_nearest(self):
        score, path = self.search("--top", 1, query=self.paths[4]).out.split("\t")
        self.assertEqual(path.strip(), self.paths[4])
        self.assertAlmostEqual(float(score), 1.0, delta=2e-6)

    def test_files_that_cannot_be_read_are_left_out(self):
        data = self.read(self.paths[3])
        self.write("pictures/03.png", data[:len(data) // 2])
        self.write("pictures/Z.PNG", png.encode(self.query))
        self.write("pictures/none.png", "")
        result = self.search()
        self.assertEqual(result.status, 0, result)
        self.assertEqual(len(result.errors), 1, result)
        self.assertRegex(result.errors[0], "^clattn: warning: 2 of 11 pictures could not be read and are left out: .*03.png")
        found = [line.split("\t")[1] for line in result.out.splitlines()]
        self.assertEqual(found[0], self.path("pictures/Z.PNG"))
        self.assertEqual(sorted(found), sorted(path for path in self.paths + [self.path("pictures/Z.PNG")] if not path.endswith("03.png")))

    def test_refusals(self):
        self.refuse(2, "embed-image", self.folder_of_model, "--search", self.path("none"), self.query_path,
                    saying=(self.path("none"), "is no folder"))
        os.mkdir(self.path("empty"))
        self.refuse(2, "embed-image", self.folder_of_model, "--search", self.path("empty"), self.query_path,
                    saying=(self.path("empty"), "has no files that end in .png"))
        self.write("empty/a.png", "nothing")
        self.refuse(2, "embed-image", self.folder_of_model, "--search", self.path("empty"), self.query_path,
                    saying=("none of its 1 pictures can be read", "a.png"))
        self.refuse(2, "embed-image", self.folder_of_model, "--search", self.path("pictures"), self.path("empty/a.png"),
                    saying=("a.png", "has fewer than 8 bytes"))


RAMP = np.array([(20, 23, 28), (40, 60, 110), (60, 125, 170), (140, 195, 170), (250, 240, 150)], float)
GREY, RULE = 160, 2


class Devices(ImageTest):
    """--device 0,1: each batch of pictures goes to whichever device has none."""

    def test_as_one(self):
        """Vectors are those of one device, bit by bit, and of pictures that are left out the first one is named."""
        self.two_devices()
        self.make("vit")
        paths = self.save_pictures([self.picture(32, 32) for _ in range(300)])
        query = self.write("query.png", png.encode(self.picture(32, 32)))
        for number in (290, 130, 131):
            self.write(f"pictures/{number}.png", "")
        command = ("embed-image", self.folder_of_model, "--search", self.path("pictures"), query, "--json", "--device")
        one, two = (self.succeed(*command, device) for device in ("0", "0,1"))
        self.assertEqual(two.json()["matches"], one.json()["matches"])
        self.assertEqual(len(one.json()["matches"]), 297)
        self.assertEqual(two.errors, one.errors)
        self.assertRegex(two.errors[0], "3 of 300 pictures could not be read and are left out: .*130.png")
        self.assertEqual((len(two.json()["devices"]), sum(two.json()["shares"])), (2, 3))
        self.assertGreater(min(two.json()["shares"]), 0)
        for device in ("0", "0,1"):
            self.succeed("embed-image", self.folder_of_model, "--device", device, "-o", self.path(device + ".npy"), "--repeat", 1,
                         "--attention", self.path(device + ".html"), *paths[:3])
        self.assertEqual(self.read("0,1.npy"), self.read("0.npy"))
        self.assertEqual(self.read("0,1.html"), self.read("0.html"))

    def test_refusals(self):
        self.two_devices()
        self.make("vit")
        path = self.save_pictures([self.picture(32, 32)])[0]
        command = ("embed-image", self.folder_of_model, path, "--device")
        self.refuse(2, *command, "0,0", saying="embed-image: --device '0,0' has device 0 twice")
        self.refuse(3, *command, "99,0", saying='no device matches "99"')
        self.refuse(2, *command, "1,0", "--solver", "nobody", saying=("clattn: device ", "nobody"))
        paths = self.save_pictures([self.picture(32, 32) for _ in range(300)])
        self.write("pictures/250.png", "")
        self.refuse(2, *command[:2], *paths, "--device", "0,1", saying="250.png")


class Maps(MapTest, ImageTest):
    """--attention: the last layer's attention, in the page and over the picture."""

    def attention(self, pixels):
        probabilities = []
        self.model.vector(pixels, probabilities)
        return np.array(probabilities)

    def draw(self, pictures, *files):
        paths = self.save_pictures(pictures)
        options = [word for name in files for word in ("--attention", self.path(name))]
        found = self.embed(paths, *options)
        self.near(found, pictures)
        return paths

    def overlay(self, pictures):
        """Fails unless map.png shows each picture, and beside it the same with its attention."""
        s = self.model.spec
        shown = png.decode(self.read("map.png")).astype(float)
        height, width = s["size"]
        scale = max(1, 384 // max(height, width))
        self.assertEqual(shown.shape, (RULE + len(pictures) * (height * scale + RULE), 3 * RULE + 2 * width * scale, 3))
        first = int(s["token"]) + s["registers"]
        for i, pixels in enumerate(pictures):
            seen = self.model.levels(pixels)
            p = self.attention(pixels)[0].mean(0)
            row = p[0] if s["token"] else p[first:].mean(0)
            share = row[first:] / row[first:].max() * 4
            low = np.minimum(share.astype(int), 3)
            tint = RAMP[low] + (RAMP[low + 1] - RAMP[low]) * (share - low)[:, None]
            cell = s["patch"]
            tint = tint.reshape(height // cell, width // cell, 3).repeat(cell, 0).repeat(cell, 1)
            top = RULE + i * (height * scale + RULE)
            both = (shown[top:top + height * scale, RULE:RULE + width * scale],
                    shown[top:top + height * scale, 2 * RULE + width * scale:2 * RULE + 2 * width * scale])
            for part, wanted in zip(both, (seen, 0.4 * seen + 0.6 * tint)):
                self.assertLessEqual(np.max(np.abs(part - wanted.repeat(scale, 0).repeat(scale, 1))), 1)
            self.assertTrue(np.all(shown[top - RULE:top] == GREY))
            self.assertTrue(np.all(shown[top:, :RULE] == GREY))

    def test_page_and_picture(self):
        self.make("vit")
        pictures = [self.picture(32, 32), self.picture(32, 32)]
        paths = self.draw(pictures, "map.html", "map.png")
        page = self.page()
        for i, pixels in enumerate(pictures):
            about = page.about["parts"][i]
            self.assertEqual((about["name"], about["picture"]),
                             (paths[i], dict(width=32, height=32, rows=4, columns=4, first=1)))
            self.assertEqual(about["key"]["labels"][:2] + about["query"]["labels"][-1:],
                             ["class token", "row 0, column 0", "row 3, column 3"])
            self.same(page, self.attention(pixels), i)
            np.testing.assert_array_equal(page.picture(i), self.model.levels(pixels))
        self.overlay(pictures)

    @slow
    def test_registers_and_other_grids(self):
        self.make("dinov2_with_registers", processor=True, size=(24, 40), resized=(40,), layers=3)
        pictures = [self.picture(40, 40)]
        self.draw(pictures, "map.html", "map.png")
        page = self.page()
        self.assertEqual(page.about["parts"][0]["key"]["labels"][:6],
                         ["class token", "register 0", "register 1", "register 2", "register 3", "row 0, column 0"])
        self.same(page, self.attention(pictures[0]))
        self.overlay(pictures)

    @slow
    def test_without_a_class_token(self):
        """Then the picture shows the mean of what patches attend to."""
        self.make("timm", token=False, token_position=False, pooling="patches", resized=(32,))
        pictures = [self.picture(32, 32)]
        self.draw(pictures, "map.png")
        self.overlay(pictures)

    def test_refusals(self):
        self.make("vit")
        path = self.save_pictures([self.picture(32, 32)])[0]
        for files, saying in ((["map.pdf"], "expected one that ends in .html or .png"), (["a/map.png"], "existing directory"),
                              (["map.png", "map.png"], "two outputs"), (["pictures/00.png"], "is the input")):
            options = [word for name in files for word in ("--attention", self.path(name))]
            self.refuse(2, "embed-image", self.folder_of_model, path, *options, saying=saying)
        self.refuse(2, "embed-image", self.folder_of_model, path, "--search", self.path("pictures"), "--attention",
                    self.path("map.png"), saying="--attention draws what is given as PICTURE, found --search")
        self.make("vit", processor=True)
        self.model.processor.update(size=dict(height=1024, width=1024))
        self.model.write(self.folder_of_model)
        self.refuse(2, "embed-image", self.folder_of_model, path, "--attention", self.path("map.html"),
                    saying=("1 x 2 matrices of 16385 x 16385 probabilities", "expected at most"))
        self.assertFalse(os.path.exists(self.path("map.html")))


class Usage(ImageTest):
    def test_arguments(self):
        self.refuse(2, "embed-image", saying="MODEL_DIR PICTURE")
        self.refuse(2, "embed-image", "folder", saying="PICTURE")
        self.refuse(2, "embed-image", "folder", "a.png", "b.png", "--search", "here", saying="--search takes one PICTURE, found more")
        self.refuse(2, "embed-image", "folder", "a.png", "--top", "3", saying="--top is for --search")
        self.refuse(2, "embed-image", "folder", "a.png", "--search", "here", "-o", "x.npy", saying="--search and -o exclude")
        self.refuse(2, "embed-image", "folder", "a.png", "--dtype", "f64", saying=("f64", "f32 or f16 or bf16"))

    def test_help(self):
        text = self.succeed("embed-image", "--help").out
        self.assertIn("usage: clattn embed-image", text)
        for option in ("--search FOLDER", "--top N", "-o OUT.npy", "--attention OUT.html|OUT.png", "--dtype TYPE", "--device SPEC", "--json"):
            self.assertIn(option, text)
        self.assertIn("embed-image", self.succeed("--help").out)

    def test_outputs(self):
        self.make("vit")
        paths = self.save_pictures([self.picture(32, 32)])
        for output, saying in ((self.folder, "is a directory"), (self.path("none/x.npy"), "existing directory"),
                               (paths[0], "is the input"), (self.path("model/model.safetensors"), "is the input")):
            self.refuse(2, "embed-image", self.folder_of_model, *paths, "-o", output, saying=saying)


class BadFiles(ImageTest):
    def setUp(self):
        super().setUp()
        self.good = self.write("good.png", png.encode(self.picture(32, 32)))

    def bad(self, *saying):
        self.refuse(2, "embed-image", self.folder_of_model, self.good, saying=saying)

    def write_model(self, name, contents):
        self.write(os.path.join(self.folder_of_model, name), contents if isinstance(contents, str) else json.dumps(contents))

    def test_folders(self):
        self.folder_of_model = self.path("none")
        self.bad(self.folder_of_model, "is no folder")
        self.make("vit")
        os.remove(self.path("model/config.json"))
        self.bad("config.json", "cannot be opened")
        self.make("vit")
        os.remove(self.path("model/model.safetensors"))
        self.bad("model.safetensors", "cannot be opened")

    def test_hugging_face_configs(self):
        for changed, saying in (({"model_type": "bert"}, 'model_type is "bert", expected vit, dinov2'),
                                ({"model_type": None}, "model_type is nothing"),
                                ({"hidden_size": 40}, ("model.safetensors", "1 x 17 x 32", "17 x 40")),
                                ({"hidden_size": 0}, "hidden_size is 0"),
                                ({"num_attention_heads": 3}, "32 is no multiple of the 3 heads"),
                                ({"image_size": 33}, "33 x 33 pixels are not divisible into patches of 8 x 8"),
                                ({"image_size": 40}, ("position_embeddings", "1 x 17 x 32", "26 x 32")),
                                ({"image_size": [32, 1 << 40]}, "image_size is another type"),
                                ({"patch_size": 16}, ("position_embeddings", "1 x 17 x 32", "5 x 32")),
                                ({"patch_size": 16, "image_size": 64}, ("32 x 3 x 8 x 8", "32 x 3 x 16 x 16")),
                                ({"num_channels": 1}, "pictures of 1 channels, expected 3"),
                                ({"num_hidden_layers": 3}, ("encoder.layer.2", "no tensor")),
                                ({"intermediate_size": 1 << 20}, ("48 x 32", "1048576 x 32")),
                                ({"layer_norm_eps": -1}, "layer_norm_eps is -1, expected a number from 0 to 1"),
                                ({"hidden_act": "tanh"}, 'hidden_act is "tanh"'),
                                ({"qkv_bias": 3}, "qkv_bias is 3, expected true or false"),
                                ({"model_type": "dinov2"}, ("no tensor encoder.layer.0.mlp.fc1.weight", "expected the weights")),
                                ({"model_type": "clip"}, ("patch_embedding.weight", "expected the weights of the model"))):
            with self.subTest(saying):
                self.make("vit")
                self.model.config.update(changed)
                self.model.write(self.folder_of_model)
                self.bad(*((saying,) if isinstance(saying, str) else saying))

    def test_processors(self):
        for changed, saying in (({"do_resize": False}, "do_resize is false, expected true"),
                                ({"size": {"shortest_edge": 32, "longest_edge": 64}}, "longest_edge"),
                                ({"size": {"shortest_edge": 32}}, "do_center_crop is false"),
                                ({"size": {"height": 32}}, "width is nothing"),
                                ({"size": {"height": 36, "width": 32}}, "pictures become 36 x 32 pixels, expected multiples"),
                                ({"size": 1 << 30}, "size is 1073741824, expected a whole number from 1 to 8192"),
                                ({"resample": 1}, "resample is 1, expected 2"),
                                ({"image_std": [1, 0, 1]}, "image_std is another type, expected three numbers above 0"),
                                ({"image_mean": [1]}, "image_mean"), ({"rescale_factor": "x"}, "rescale_factor")):
            with self.subTest(saying):
                self.make("vit", processor=True)
                self.model.processor.update(changed)
                self.model.write(self.folder_of_model)
                self.bad("preprocessor_config.json", saying)
        self.write_model("preprocessor_config.json", "[")
        self.bad("preprocessor_config.json: is not JSON")

    def test_timm_configs(self):
        for name, changed, saying in (("pretrained_cfg", {"input_size": [3, 36, 36]}, "36 x 36"),
                                      ("pretrained_cfg", {"input_size": [3, 32]}, "input_size"),
                                      ("pretrained_cfg", {"input_size": [3, 16, 32]}, "as many rows as columns"),
                                      ("pretrained_cfg", {"crop_mode": "border"}, 'crop_mode is "border"'),
                                      ("pretrained_cfg", {"crop_pct": 7}, "crop_pct is 7"),
                                      ("pretrained_cfg", {"interpolation": "nearest"}, 'interpolation is "nearest"'),
                                      ("pretrained_cfg", {"std": [0, 0, 0]}, "std"),
                                      ("model_args", {"num_heads": 3}, "the number of heads of vit_of_a_test"),
                                      ("model_args", {"act_layer": "star"}, 'act_layer is "star"'),
                                      ("model_args", {"global_pool": "map"}, 'global_pool is "map", expected token or avg')):
            with self.subTest(saying):
                self.make("timm")
                self.model.config[name].update(changed)
                self.model.write(self.folder_of_model)
                self.bad("config.json", saying)
        self.make("timm")
        self.write_model("config.json", {"architecture": "vit_of_a_test"})
        self.bad("the number of heads of vit_of_a_test is not known for 32 columns")

    def test_weights_of_another_model(self):
        self.make("timm")
        for name, shape, found in (("blocks.0.gamma_1", (32,), "(32,)"), ("attn_pool.q", (1, 32), "(1, 32)")):
            tensors = {**self.model.tensors, name: np.zeros(shape, np.float32)}
            write_safetensors(self.path("model/model.safetensors"), tensors)
            self.bad(name, found, "VisionTransformer")
        tensors = {other: tensor for other, tensor in self.model.tensors.items() if other != "norm.weight"}
        write_safetensors(self.path("model/model.safetensors"), tensors)
        self.bad("norm.weight or fc_norm.weight")

    def test_norms_after_the_pooling(self):
        self.make("timm", norm_after=True, pooling="patches")
        for shape, found in (((31,), "(31,)"), ((1, 32), "(1, 32)")):
            write_safetensors(self.path("model/model.safetensors"),
                              {**self.model.tensors, "fc_norm.bias": np.zeros(shape, np.float32)})
            self.bad("fc_norm.bias", found, "of (32,)")
        del self.model.tensors["fc_norm.bias"]
        self.model.write(self.folder_of_model)
        self.bad("has no tensor fc_norm.bias, expected one of shape (32,)")
        self.make("timm")
        write_safetensors(self.path("model/model.safetensors"), {**self.model.tensors, "fc_norm.weight": self.normal(32)})
        self.bad("has a tensor norm.bias of shape (32,), expected those of a VisionTransformer")

    def test_vectors_that_are_not_finite(self):
        self.make("vit")
        self.model.tensors["layernorm.bias"][3] = np.nan
        self.model.write(self.folder_of_model)
        path = self.save_pictures([self.picture(32, 32)])[0]
        for options in ([], ["--json"], ["--search", os.path.dirname(path)]):
            self.refuse(2, "embed-image", self.folder_of_model, path, *options, saying=(path, "is not finite"))

    def test_missing_tensors_are_named(self):
        for family in sorted(FAMILIES)[:2 if QUICK else None]:
            self.make(family)
            names = sorted(self.model.tensors)
            # What timm's models may lack is no error.
            chosen = [name for name in names[::7] if family != "timm" or "blocks.1" in name]
            for name in chosen:
                with self.subTest(name):
                    write_safetensors(self.path("model/model.safetensors"),
                                      {other: tensor for other, tensor in self.model.tensors.items() if other != name})
                    self.bad("model.safetensors", name)

    def test_wrong_shapes_are_both_named(self):
        for family, name, shape, found, expected in (
                ("vit", "encoder.layer.1.attention.attention.key.weight", (32, 31), "32 x 31", "32 x 32"),
                ("vit", "embeddings.cls_token", (1, 1, 31), "1 x 1 x 31", "32"),
                ("vit", "embeddings.patch_embeddings.projection.weight", (32, 192), "(32, 192)", "no model"),
                ("dinov2_with_registers", "embeddings.register_tokens", (1, 3, 32), "1 x 3 x 32", "4 x 32"),
                ("clip", "visual_projection.weight", (32, 24), "32 x 24", "24 x 32"),
                ("timm", "blocks.1.attn.qkv.weight", (64, 32), "64 x 32", "96 x 32"),
                ("timm", "pos_embed", (1, 18, 32), "18 positions", "square grid")):
            with self.subTest(name):
                self.make(family)
                write_safetensors(self.path("model/model.safetensors"),
                                  {**self.model.tensors, name: np.zeros(shape, np.float32)})
                self.bad("model.safetensors", found, expected)

    def test_pictures(self):
        self.make("vit")
        good = self.read(self.good)
        for data, saying in ((good[:-30], "ends before the picture does"), (good[:20], "expected a whole PNG file"),
                             (b"", "has 0 bytes"), (b"GIF89a..........", "does not begin as PNG files do"),
                             (png.SIGNATURE + png.header(0, 5, 8, 2) + png.chunk(b"IEND", b""), "expected a whole PNG file"),
                             (png.SIGNATURE + png.header(1 << 19, 1 << 19, 8, 2) + png.chunk(b"IDAT", b""), "more than 2^27 pixels")):
            with self.subTest(saying):
                bad = self.write("bad.png", data)
                result = self.refuse(2, "embed-image", self.folder_of_model, self.good, bad, saying=(bad, saying))
                self.assertEqual(result.out, "")
                self.refuse(2, "embed-image", self.folder_of_model, self.good, bad, "-o", self.path("out.npy"), saying=bad)
                self.assertFalse(os.path.exists(self.path("out.npy")))
        self.refuse(2, "embed-image", self.folder_of_model, self.path("none.png"), saying="cannot be opened")
        self.refuse(2, "embed-image", self.folder_of_model, self.folder, saying="is a folder")

    @slow
    def test_long_and_thin_pictures(self):
        """A shortest edge of a pixel would make a picture of gigabytes of it."""
        self.make("clip")
        thin = self.write("thin.png", png.encode(self.picture(1, 20000)))
        self.refuse(2, "embed-image", self.folder_of_model, thin, saying=("1 x 20000", "32 x 640000", "at most 16777216"))
        pictures = [self.picture(1, 150), self.picture(1, 1), self.picture(200, 2)]
        self.near(self.embed(self.save_pictures(pictures)), pictures)

    def test_damage_anywhere(self):
        for family in ("vit", "timm"):
            self.make(family, processor=family == "vit")
            for name in ("config.json", "preprocessor_config.json", "model.safetensors"):
                path = os.path.join(self.folder_of_model, name)
                if not os.path.exists(path):
                    continue
                good = self.read(path)
                for _ in range(1 if QUICK else 12):
                    data = bytearray(good)
                    at = int(self.random.integers(0, min(len(data), 4000)))
                    data[at] ^= 1 << int(self.random.integers(0, 8))
                    self.write(path, bytes(data))
                    result = self.run_clattn("embed-image", self.folder_of_model, self.good)
                    self.assertIn(result.status, (0, 2), result)
                    self.assertEqual(len(result.errors), 1 if result.status else 0, result)
                self.write(path, good[:len(good) // 2])
                self.refuse(2, "embed-image", self.folder_of_model, self.good)
                self.write(path, good)


if __name__ == "__main__":
    main()
