# Test doubles of NVIDIA's driver and libraries (doubles/cuda/vgpu.h), in the build folder vgpu/.
# They compile kernels with a C++ compiler.
set(cuda_doubles "")
set(on_doubles "")
set(VGPU_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/vgpu)
list(APPEND test_definitions WB_TEST_HIP_DOUBLE="${CMAKE_CURRENT_BINARY_DIR}/vgpu_hip")
find_program(CXX_COMPILER NAMES ${CMAKE_CXX_COMPILER} g++ clang++ c++)
function(cuda_double name suffix)
    add_library(vgpu_${name} SHARED ${ARGN})
    set_target_properties(vgpu_${name} PROPERTIES OUTPUT_NAME ${name} SUFFIX .so.${suffix}
                          BUILD_RPATH $ORIGIN LIBRARY_OUTPUT_DIRECTORY ${VGPU_FOLDER})
    target_compile_definitions(vgpu_${name} PRIVATE
                               VGPU_SHIM="${CMAKE_CURRENT_SOURCE_DIR}/doubles/cuda"
                               VGPU_DEFAULT_CXX="${CXX_COMPILER}" VGPU_MAJOR=13)
    target_compile_options(vgpu_${name} PRIVATE -U_FORTIFY_SOURCE -fno-math-errno)
    target_link_libraries(vgpu_${name} PRIVATE weber_flags Threads::Threads ${CMAKE_DL_LIBS} m)
    set(cuda_doubles ${cuda_doubles} vgpu_${name} PARENT_SCOPE)
endfunction()
if(CXX_COMPILER AND WEBER_TEST_DEVICES)
    cuda_double(cuda 1 doubles/cuda/books.c doubles/cuda/copy.c doubles/cuda/device.c
                doubles/cuda/engine.c doubles/cuda/graph.c doubles/cuda/image.c
                doubles/cuda/memory.c doubles/cuda/module.c doubles/cuda/stream.c)
    cuda_double(nvrtc 13 doubles/cuda/nvrtc.c doubles/compile.c doubles/cuda/image.c)
    add_executable(vgpu_rtc ${PROJECT_SOURCE_DIR}/tools/kernels/rtc.c)
    target_link_libraries(vgpu_rtc PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(vgpu_rtc PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${VGPU_FOLDER})
    target_compile_definitions(vgpu_nvrtc PRIVATE VGPU_RTC="${VGPU_FOLDER}/vgpu_rtc")
    add_dependencies(vgpu_nvrtc vgpu_rtc)
    cuda_double(cublasLt 13 doubles/cuda/cublaslt.c)
    target_link_libraries(vgpu_cublasLt PRIVATE vgpu_cuda)
    cuda_double(cudnn 9 doubles/cuda/cudnn.c doubles/cuda/cudnn_run.c)
    target_include_directories(vgpu_cudnn PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(vgpu_cudnn PRIVATE vgpu_cuda)
    cuda_double(nccl 2 doubles/cuda/nccl.c doubles/cuda/nccl_run.c)
    target_include_directories(vgpu_nccl PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(vgpu_nccl PRIVATE vgpu_cuda)
    foreach(name nvrtc cublasLt cudnn)              # the same for CUDA 12, in vgpu12/
        get_target_property(files vgpu_${name} SOURCES)
        get_target_property(definitions vgpu_${name} COMPILE_DEFINITIONS)
        list(REMOVE_ITEM definitions VGPU_MAJOR=13)
        set(suffix 12)
        if(name STREQUAL cudnn)
            set(suffix 9)
        endif()
        cuda_double(${name}_12 ${suffix} ${files})
        set_target_properties(vgpu_${name}_12 PROPERTIES OUTPUT_NAME ${name}
                              COMPILE_DEFINITIONS "${definitions};VGPU_MAJOR=12"
                              LIBRARY_OUTPUT_DIRECTORY ${VGPU_FOLDER}12)
        target_include_directories(vgpu_${name}_12 PRIVATE ${PROJECT_SOURCE_DIR}/src)
    endforeach()
    target_link_libraries(vgpu_cublasLt_12 PRIVATE vgpu_cuda)
    target_link_libraries(vgpu_cudnn_12 PRIVATE vgpu_cuda)
    string(CONCAT on_doubles ";WEBER_CUDA_LIBRARY=${VGPU_FOLDER}/libcuda.so.1"
           ";WEBER_CUDA_PATH=${VGPU_FOLDER}"
           ";VGPU_CACHE=${WEBER_TEST_CACHE}/vgpu;VGPU_STRICT=1;WEBER_TEST_MUST=1")
    list(APPEND test_definitions WB_TEST_CUDA_DOUBLE="${VGPU_FOLDER}")
    # Doubles of HIP, hiprtc and comgr (doubles/hip/hip.h), which use those of CUDA: of ROCm 7 in
    # vgpu_hip/, of ROCm 5, whose runtime contains hiprtc, in vgpu_hip5/.
    foreach(rocm 7 5)
        set(folder ${CMAKE_CURRENT_BINARY_DIR}/vgpu_hip)
        set(comgr 3)
        set(in_runtime "")
        if(rocm EQUAL 5)
            set(folder ${folder}5)
            set(comgr 2)
            set(in_runtime doubles/hip/hiprtc.c)
        else()
            cuda_double(hiprtc_${rocm} ${rocm} doubles/hip/hiprtc.c)
        endif()
        cuda_double(amdhip64_${rocm} ${rocm} doubles/hip/hip.c ${in_runtime})
        cuda_double(amd_comgr_${rocm} ${comgr} doubles/hip/comgr.c)
        if(rocm EQUAL 7)                            # without these our own kernels are used
            cuda_double(rocblas_${rocm} 5 doubles/hip/rocblas.c)
            cuda_double(MIOpen_${rocm} 1 doubles/hip/miopen.c)
            cuda_double(rccl_${rocm} 1 doubles/cuda/nccl.c doubles/cuda/nccl_run.c)
            target_include_directories(vgpu_rccl_${rocm} PRIVATE ${PROJECT_SOURCE_DIR}/src)
            foreach(name rocblas MIOpen rccl)
                target_link_libraries(vgpu_${name}_${rocm} PRIVATE -Wl,--no-as-needed
                                      vgpu_amdhip64_${rocm})
            endforeach()
            # the names of the files with kernels, by which the backend knows the GPUs of rocBLAS
            foreach(gfx gfx90a gfx942)
                file(WRITE ${folder}/rocblas/library/TensileLibrary_${gfx}.dat "")
            endforeach()
        endif()
        foreach(name amdhip64 hiprtc amd_comgr rocblas MIOpen rccl)
            if(TARGET vgpu_${name}_${rocm})
                target_link_libraries(vgpu_${name}_${rocm} PRIVATE vgpu_cuda vgpu_nvrtc)
                target_compile_definitions(vgpu_${name}_${rocm} PRIVATE VGPU_ROCM=${rocm})
                set_target_properties(vgpu_${name}_${rocm} PROPERTIES OUTPUT_NAME ${name}
                                      BUILD_RPATH ${VGPU_FOLDER} LIBRARY_OUTPUT_DIRECTORY ${folder})
            endif()
        endforeach()
    endforeach()
    # A double of Metal (doubles/metal/vgpu_metal.h) for Linux, in vgpu_metal/.
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|aarch64")
        set(metal doubles/metal)
        cuda_double(metal 0 ${metal}/archive.c ${metal}/commands.c ${metal}/device.c
                    ${metal}/encoder.c ${metal}/foundation.c ${metal}/library.c ${metal}/objc.c
                    ${metal}/translate.c doubles/compile.c doubles/cuda/image.c)
        target_compile_definitions(vgpu_metal PRIVATE
                                   VGPU_METAL_SHIM="${CMAKE_CURRENT_SOURCE_DIR}/doubles/metal")
        target_link_libraries(vgpu_metal PRIVATE vgpu_cuda)
        set(METAL_DOUBLE ${CMAKE_CURRENT_BINARY_DIR}/vgpu_metal)
        list(APPEND test_definitions WB_TEST_METAL_DOUBLE="${METAL_DOUBLE}")
        set_target_properties(vgpu_metal PROPERTIES PREFIX "" OUTPUT_NAME Metal SUFFIX ""
                              BUILD_RPATH ${VGPU_FOLDER} LIBRARY_OUTPUT_DIRECTORY ${METAL_DOUBLE})
        cuda_double(mps 0 ${metal}/mps.c)
        cuda_double(mpsgraph 0 ${metal}/mpsgraph.c)
        target_link_libraries(vgpu_mps PRIVATE vgpu_metal vgpu_cuda)
        target_link_libraries(vgpu_mpsgraph PRIVATE vgpu_mps vgpu_metal vgpu_cuda)
        set_target_properties(vgpu_mps PROPERTIES OUTPUT_NAME MetalPerformanceShaders)
        set_target_properties(vgpu_mpsgraph PROPERTIES OUTPUT_NAME MetalPerformanceShadersGraph)
        set_target_properties(vgpu_mps vgpu_mpsgraph PROPERTIES PREFIX "" SUFFIX ""
                              BUILD_RPATH "${METAL_DOUBLE};${VGPU_FOLDER}"
                              LIBRARY_OUTPUT_DIRECTORY ${METAL_DOUBLE})
    endif()
    string(CONCAT on_metal ";WEBER_METAL_LIBRARY=${METAL_DOUBLE}/Metal"
           ";WEBER_METAL_PATH=${METAL_DOUBLE}"
           ";VGPU_CACHE=${WEBER_TEST_CACHE}/vgpu;VGPU_STRICT=1;WEBER_TEST_MUST=1")
    string(CONCAT on_hip ";WEBER_ROCM_PATH=${CMAKE_CURRENT_BINARY_DIR}/vgpu_hip"
           ";VGPU_LIBRARY=${VGPU_FOLDER}/libcuda.so.1;WEBER_CUDA_LIBRARY=${nowhere}"
           ";VGPU_CACHE=${WEBER_TEST_CACHE}/vgpu;VGPU_STRICT=1;WEBER_TEST_MUST=1")
endif()

