# CMake's toolchain for macOS without Apple's SDK: clang compiles for macOS, and WEBER_MACOS
# is a folder with the headers of macos-headers.txt and a list of the system's functions.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR ${WEBER_ARCH})
set(CMAKE_SYSTEM_VERSION 22)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES WEBER_ARCH WEBER_MACOS)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_COMPILER clang)
set(CMAKE_C_COMPILER_TARGET ${WEBER_ARCH}-apple-macos13)
set(CMAKE_C_FLAGS_INIT "-nostdlibinc -isystem ${WEBER_MACOS}/include")
foreach(kind EXE SHARED)
    # clang calls the linker of macOS 13 with other options than older ones
    set(CMAKE_${kind}_LINKER_FLAGS_INIT
        "-isysroot ${WEBER_MACOS} -fuse-ld=lld -mlinker-version=820")
endforeach()
execute_process(COMMAND clang -print-prog-name=llvm-ar OUTPUT_VARIABLE CMAKE_AR
                OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_RANLIB ":")                       # llvm-ar has made the index
set(CMAKE_INSTALL_NAME_TOOL ":")
set(CMAKE_FIND_ROOT_PATH ${WEBER_MACOS})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
    set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
