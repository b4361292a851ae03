# For callPackage.  No package of nixpkgs may have the name of the last argument: callPackage would
# pass that package.
{ lib, stdenv, fetchurl, cmake, ninja, pkg-config, zlib, libzip, utf8proc, oneDNN
, weberArchive ? fetchurl {
    url = "@URL@";
    sha256 = "@SHA256@";
  }
}:

stdenv.mkDerivation {
  pname = "weber";
  version = "@VERSION@";
  src = weberArchive;

  nativeBuildInputs = [ cmake ninja pkg-config ];
  buildInputs = [ zlib libzip utf8proc oneDNN ];

  cmakeFlags = [
    "-DWEBER_ZLIB=ON"
    "-DWEBER_ZIP=ON"
    "-DWEBER_UTF8PROC=ON"
    "-DWEBER_ONEDNN=ON"
    "-DWEBER_BSON=OFF"
    "-DWEBER_MPI=OFF"
    "-DWEBER_TESTS=OFF"
    "-DWEBER_EXAMPLES=OFF"
    "-DWEBER_BENCH=OFF"
  ];

  # An example is compiled by pkg-config against what was installed, and run.
  doInstallCheck = true;
  installCheckPhase = ''
    runHook preInstallCheck
    export PKG_CONFIG_PATH=$out/lib/pkgconfig
    $CC -std=c11 ../examples/03_xor.c -o xor $(pkg-config --cflags --libs weber) -lm
    LD_LIBRARY_PATH=$out/lib ./xor
    $out/bin/weber --version | grep -F "@VERSION@"
    runHook postInstallCheck
  '';

  meta = {
    description = "@DESCRIPTION@";
    homepage = "@HOMEPAGE@";
    license = lib.licenses.mit;
    platforms = lib.platforms.unix;
    mainProgram = "weber";
  };
}
