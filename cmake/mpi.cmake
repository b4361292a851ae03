# Builds libweber-mpi for each MPI whose compiler is installed.
#
# Programs of different MPIs cannot be mixed, so each gets a library of its own: weber-mpi-openmpi
# for the compiler mpicc.openmpi, weber-mpi-mpich for mpicc.mpich; weber-mpi is that of the compiler
# mpicc.  The compilers are only asked for their options.  Sets weber_mpis to the names of the
# libraries' targets.

set(weber_mpis "")
function(weber_add_mpi wrapper suffix)
    execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE line RESULT_VARIABLE failed
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(failed)
        return()
    endif()
    separate_arguments(words UNIX_COMMAND "${line}")
    set(folders "")
    set(link "")
    foreach(word IN LISTS words)
        if(word MATCHES "^-I(.+)")
            list(APPEND folders "${CMAKE_MATCH_1}")
        elseif(word MATCHES "^-(l|L|Wl,)" OR word STREQUAL "-pthread")
            list(APPEND link "${word}")
        endif()
    endforeach()
    # An MPI for another system or C library than that of the compiler is left out.
    set(CMAKE_REQUIRED_INCLUDES ${folders})
    set(CMAKE_REQUIRED_LIBRARIES ${link})
    check_c_source_compiles("#include <mpi.h>
                             int main(void) { return MPI_Finalize(); }" WEBER_MPI_WORKS${suffix})
    if(NOT WEBER_MPI_WORKS${suffix})
        return()
    endif()
    set(target weber_mpi${suffix})
    string(REPLACE "_" "-" name "weber_mpi${suffix}")
    add_library(${target} SHARED src/dist/mpi/mpi.c src/base/os_posix_thread.c)
    version_symbols(${target})
    keep_loaded(${target})
    # For programs of this project that call MPI themselves.
    add_library(${target}_itself INTERFACE)
    target_include_directories(${target}_itself SYSTEM INTERFACE ${folders})
    target_link_libraries(${target}_itself INTERFACE ${link})
    target_include_directories(${target} PRIVATE src SYSTEM PRIVATE ${folders})
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:weber_flags> Threads::Threads
                          ${link})
    string(REPLACE "weber_" "" export_name "${target}")
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME ${export_name}
                          VERSION ${PROJECT_VERSION} SOVERSION ${version_MAJOR}.${version_MINOR}
                          INSTALL_NAME_DIR "$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}")
    set(weber_mpis ${weber_mpis} ${target} PARENT_SCOPE)
endfunction()

find_program(WEBER_MPICC mpicc)
find_program(WEBER_MPICC_OPENMPI mpicc.openmpi)
find_program(WEBER_MPICC_MPICH mpicc.mpich)
if(WEBER_MPICC)
    weber_add_mpi(${WEBER_MPICC} "")
endif()
foreach(name openmpi mpich)
    string(TOUPPER ${name} upper)
    if(WEBER_MPICC_${upper})
        weber_add_mpi(${WEBER_MPICC_${upper}} _${name})
    endif()
endforeach()
