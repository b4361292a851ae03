"""Conan 2 builds Weber from its release archive, which conandata.yml names: conan create ."""
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rmdir

required_conan_version = ">=2.0"

# The option; the package and its versions; whether its own dependencies make it a shared library
LIBRARIES = {
    "zlib": ("zlib/[>=1.2.11 <2]", False),
    "bson": ("mongo-c-driver/[>=1.23 <2]", True),
    "zip": ("libzip/[>=1.7 <2]", True),
    "utf8proc": ("utf8proc/[>=2.5 <3]", False),
    "onednn": ("onednn/[>=2.6 <4]", True),
}


class Weber(ConanFile):
    name = "weber"
    version = "@VERSION@"
    description = "@DESCRIPTION@"
    homepage = "@HOMEPAGE@"
    license = "MIT"
    topics = ("neural-networks", "machine-learning", "deep-learning")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "with_zlib": [True, False],
        "with_bson": [True, False],
        "with_zip": [True, False],
        "with_utf8proc": [True, False],
        "with_onednn": [True, False],
    }
    default_options = {
        "shared": False,
        "fPIC": True,
        "with_zlib": True,
        "with_bson": False,
        "with_zip": False,
        "with_utf8proc": False,
        "with_onednn": False,
        # Of mongo-c-driver only libbson is used.
        "mongo-c-driver/*:with_ssl": False,
        "mongo-c-driver/*:with_snappy": False,
        "mongo-c-driver/*:with_zstd": False,
        "mongo-c-driver/*:with_icu": False,
        "mongo-c-driver/*:srv": False,
    }

    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")
        for name in ("libcxx", "cppstd"):               # the library is C
            self.settings.rm_safe(f"compiler.{name}")
        for library, (package, is_shared) in LIBRARIES.items():
            if is_shared and self.options.get_safe(f"with_{library}"):
                self.options[package.split("/")[0]].shared = True

    def validate(self):
        if self.settings.os not in ("Linux", "Macos"):
            raise ConanInvalidConfiguration(f"Weber needs Linux or macOS, not {self.settings.os}")

    def layout(self):
        cmake_layout(self, src_folder="src")

    def requirements(self):
        for library, (package, _) in LIBRARIES.items():
            if self.options.get_safe(f"with_{library}"):
                self.requires(package)

    def source(self):
        get(self, **self.conan_data["sources"][str(self.version)], strip_root=True)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        values = toolchain.cache_variables
        values["WEBER_SHARED"] = bool(self.options.shared)
        values["WEBER_STATIC"] = not self.options.shared
        for library in LIBRARIES:
            on = self.options.get_safe(f"with_{library}")
            values[f"WEBER_{library.upper()}"] = "ON" if on else "OFF"
        for name in ("MPI", "TESTS", "EXAMPLES", "BENCH"):
            values[f"WEBER_{name}"] = "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for folder in ("cmake", "pkgconfig"):           # Conan writes its own
            rmdir(self, os.path.join(self.package_folder, "lib", folder))

    def package_info(self):
        self.cpp_info.libs = ["weber"]
        self.cpp_info.set_property("cmake_file_name", "weber")
        self.cpp_info.set_property("cmake_target_name", "weber::weber")
        self.cpp_info.set_property("pkg_config_name", "weber")
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["m", "pthread", "dl"]
