class Weber < Formula
  desc "@DESCRIPTION@"
  homepage "@HOMEPAGE@"
  url "@URL@"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "cmake" => :build
  depends_on "libzip"
  depends_on "onednn"
  depends_on "utf8proc"

  uses_from_macos "zlib"

  def install
    args = %w[
      -DWEBER_ZLIB=ON
      -DWEBER_ZIP=ON
      -DWEBER_UTF8PROC=ON
      -DWEBER_ONEDNN=ON
      -DWEBER_BSON=OFF
      -DWEBER_MPI=OFF
      -DWEBER_TESTS=OFF
      -DWEBER_EXAMPLES=OFF
      -DWEBER_BENCH=OFF
    ]
    system "cmake", "-S", ".", "-B", "build", *args, *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
    pkgshare.install "examples"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/weber --version")
    system ENV.cc, "-std=c11", pkgshare/"examples/03_xor.c", "-o", "xor",
           "-I#{include}", "-L#{lib}", "-lweber", "-lm"
    system "./xor"
  end
end
