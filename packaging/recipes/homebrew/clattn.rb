class Clattn < Formula
  desc "Attention library for OpenCL"
  url "@URL@"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on :linux
  depends_on "opencl-headers"
  depends_on "opencl-icd-loader"

  def install
    left_out = %w[clblast pictures command png utf8proc speech sentencepiece frei0r gegl mpi onnxruntime gtk tests]
    system "meson", "setup", "build", "-Dopencl=dlopen", "-Dio=enabled",
           *left_out.map { |option| "-D#{option}=disabled" }, *std_meson_args
    system "meson", "compile", "-C", "build", "--verbose"
    system "meson", "install", "-C", "build"
  end

  test do
    (testpath/"main.c").write <<~C
      #include <clattn/clattn.h>
      #include <string.h>
      int main(void) { return strcmp(clattn_version_string(), "#{version}"); }
    C
    system ENV.cc, "main.c", "-I#{include}", "-I#{Formula["opencl-headers"].opt_include}", "-L#{lib}", "-lclattn", "-o", "main"
    system "./main"
  end
end
