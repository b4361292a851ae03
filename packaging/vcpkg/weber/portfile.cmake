# An archive of this name and hash in vcpkg's folder downloads/ is used without a download.
vcpkg_download_distfile(archive
    URLS "@URL@"
    FILENAME "weber-${VERSION}.tar.gz"
    SHA512 @SHA512@
)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${archive}")

string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "dynamic" shared)
string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "static" static)
vcpkg_check_features(OUT_FEATURE_OPTIONS features
    FEATURES
        command WEBER_COMMAND
        onednn WEBER_ONEDNN
        utf8proc WEBER_UTF8PROC
        zip WEBER_ZIP
)

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        ${features}
        -DWEBER_SHARED=${shared}
        -DWEBER_STATIC=${static}
        -DWEBER_ZLIB=ON
        -DWEBER_BSON=OFF
        -DWEBER_MPI=OFF
        -DWEBER_TESTS=OFF
        -DWEBER_EXAMPLES=OFF
        -DWEBER_BENCH=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/weber)
vcpkg_fixup_pkgconfig()
if("command" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES weber AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
