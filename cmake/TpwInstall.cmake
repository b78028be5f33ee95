# What an embedder gets: library, public headers, a CMake package and a pkg-config file. The command installs itself in src/cli.
include(CMakePackageConfigHelpers)
set(TPW_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/tpworker")

install(TARGETS tpworker_library EXPORT tpworker
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tpworker" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_BINARY_DIR}/include/tpworker/version.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tpworker")
install(EXPORT tpworker NAMESPACE tpworker:: FILE tpworker-targets.cmake DESTINATION "${TPW_CMAKE_DIR}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tpworker-config.cmake.in"
  "${PROJECT_BINARY_DIR}/tpworker-config.cmake" INSTALL_DESTINATION "${TPW_CMAKE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tpworker-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tpworker-config.cmake" "${PROJECT_BINARY_DIR}/tpworker-config-version.cmake"
  DESTINATION "${TPW_CMAKE_DIR}")
# with CUDA, a static library also needs NCCL and what the CUDA runtime needs
set(TPW_PC_CUDA "")
if(TPW_HAVE_CUDA)
  get_filename_component(nccl_folder "${NCCL_LIBRARY}" DIRECTORY)
  set(TPW_PC_CUDA " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -L${nccl_folder} -lnccl -ldl -lrt")
endif()
# relative to where the file lies, so that an installed tree can be moved
file(RELATIVE_PATH TPW_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/cmake/tpworker.pc.in" "${PROJECT_BINARY_DIR}/tpworker.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tpworker.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
