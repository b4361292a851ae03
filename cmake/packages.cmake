# Packages of Debian, by CPack: libweber, libweber-dev, weber and weber-mpi.  ./run packages builds
# them.  Each is a component of the installation (CMakeLists.txt).
#
# CPack writes the control files.  dpkg-shlibdeps finds what the libraries and the command need; the
# packages that a static link needs are those that own the libraries which CMake found.

find_program(WEBER_DPKG dpkg)
find_program(WEBER_GZIP gzip)
if(NOT WEBER_DPKG OR NOT WEBER_GZIP)
    return()
endif()

# ---- version -------------------------------------------------------------------------------------

# While CHANGELOG.md calls the version not released, the package's has the time of the commit, and
# "~", which sorts before the release.
file(STRINGS CHANGELOG.md head REGEX "^## " LIMIT_COUNT 1)
set(commit_time "$ENV{SOURCE_DATE_EPOCH}")
if(commit_time STREQUAL "")
    execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} log -1 --format=%ct
                    OUTPUT_VARIABLE commit_time OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(ENV{SOURCE_DATE_EPOCH} "${commit_time}")                # string(TIMESTAMP) reads it
string(TIMESTAMP moment "%Y%m%d.%H%M" UTC)
string(TIMESTAMP day "%Y-%m-%d" UTC)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(package_version ${PROJECT_VERSION})
set(suite unstable)
if(head MATCHES "not released")
    string(APPEND package_version "~${moment}")
    set(suite UNRELEASED)
endif()
set(full_version ${package_version}-1)
set(so_version ${version_MAJOR}.${version_MINOR})

# ---- components ----------------------------------------------------------------------------------

set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "neural networks for C programs: the shared library
Weber trains and runs neural networks from C and C++, as Flux does from Julia:
models are trees of layers, a gradient is one call, and a training step is
compiled into one plan.

This package has the library that programs are linked with.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "neural networks for C programs: development files
Weber trains and runs neural networks from C and C++.

This package has the headers, the static library, and the files for pkg-config
and CMake.")
set(CPACK_DEBIAN_COMMAND_DESCRIPTION "neural networks for C programs: the command weber
The command begins a program, reports what is installed and how fast it trains,
explains error messages, shows and converts files of models, and starts the
processes of a training.")
set(CPACK_DEBIAN_MPI_DESCRIPTION "neural networks for C programs: training over MPI
Connects the processes of a training with Weber by MPI.

This package has a library for each MPI, with its files for pkg-config and
CMake.  That of the name libweber-mpi is for the MPI whose compiler is mpicc.")

set(own_libweber "libweber (= ${full_version})")
set(own_development "libweber-dev (= ${full_version})")
set(development_needs "${own_libweber}")
foreach(library IN ITEMS "${ZLIB_LIBRARY_RELEASE}" "${ZLIB_LIBRARY}" "${BSON_LIBRARY}"
                         "${ZIP_LIBRARY}" "${UTF8PROC_LIBRARY}" "${DNNL_LIBRARY}")
    if(NOT EXISTS "${library}")
        continue()
    endif()
    execute_process(COMMAND ${WEBER_DPKG} -S ${library} OUTPUT_VARIABLE owner
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REGEX REPLACE ":.*" "" owner "${owner}")
    if(owner AND NOT development_needs MATCHES ", ${owner}(,|$)")
        string(APPEND development_needs ", ${owner}")
    endif()
endforeach()

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libweber)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
# What the library opens at run time, with the names of Debian 13 and 12
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "liblapack3, libhdf5-310 | libhdf5-103-1, \
libpng16-16t64 | libpng16-16, libturbojpeg0")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libweber-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${development_needs}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "weber, pkgconf | pkg-config, cmake")
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME weber)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "${own_development}")   # for `weber new`
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS weber-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_NAME weber-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "${own_libweber}")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "openmpi-bin | mpich, ${own_development}")

set(CPACK_COMPONENTS_ALL library development command)
if(weber_mpis)
    list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()

# ---- what only packages have ---------------------------------------------------------------------

set(maintainer "Weber <weber@example.org>")
if(DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL})
    set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
file(READ LICENSE licence)
string(REGEX MATCH "Copyright \\(c\\) ([^\n]*)" found "${licence}")
set(holder "${CMAKE_MATCH_1}")
string(REGEX REPLACE ".*\n(Permission is)" "\\1" licence "${licence}")
string(REGEX REPLACE "\n+$" "" licence "${licence}")
string(REGEX REPLACE "\n\n" "\n.\n" licence "${licence}")
string(REPLACE "\n" "\n " licence "${licence}")

set(made ${PROJECT_BINARY_DIR}/debian)
configure_file(packaging/debian/copyright.in ${made}/copyright @ONLY)
configure_file(packaging/debian/changelog.in ${made}/changelog.Debian @ONLY)
configure_file(packaging/debian/weber.1.in ${made}/weber.1.in @ONLY)
configure_file(CHANGELOG.md ${made}/changelog COPYONLY)
foreach(file changelog changelog.Debian)
    execute_process(COMMAND ${WEBER_GZIP} -9nfk ${made}/${file})
endforeach()
# Packages of programs depend on the names that change with the soname.
foreach(component library mpi)
    string(TOUPPER ${component} upper)
    set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    set(CPACK_DEBIAN_${upper}_PACKAGE_PROVIDES "${name}${so_version} (= ${full_version})")
    set(libraries weber)
    if(component STREQUAL "mpi")
        string(REPLACE "_" "-" libraries "${weber_mpis}")
    endif()
    set(shlibs "")
    foreach(library IN LISTS libraries)
        string(APPEND shlibs "lib${library} ${so_version} "
               "${name}${so_version} (>= ${PROJECT_VERSION}~)\n")
    endforeach()
    file(WRITE ${made}/${component}/shlibs "${shlibs}")
    set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA
        "${made}/${component}/shlibs;${PROJECT_SOURCE_DIR}/packaging/debian/triggers")
endforeach()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    install(FILES ${made}/copyright ${made}/changelog.Debian.gz ${made}/changelog.gz
            DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
            COMPONENT ${component} EXCLUDE_FROM_ALL)
    set(overrides packaging/debian/${name}.lintian-overrides)
    if(EXISTS ${PROJECT_SOURCE_DIR}/${overrides})
        install(FILES ${overrides} DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides
                RENAME ${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
    endif()
endforeach()

# The manual page is what `weber help` prints.
add_custom_target(weber_manual VERBATIM
    COMMAND sh ${PROJECT_SOURCE_DIR}/packaging/debian/manual.sh $<TARGET_FILE:weber_cli>
            ${made}/weber.1.in ${made}/weber.1.gz
    DEPENDS weber_cli)
install(FILES ${made}/weber.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT command EXCLUDE_FROM_ALL)

# ---- CPack ---------------------------------------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weber)
set(CPACK_PACKAGE_VERSION ${package_version})
set(CPACK_PACKAGE_VENDOR Weber)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")       # else it is put before each description
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${maintainer}")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
