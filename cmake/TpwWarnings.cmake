# The flags that every target of ours gets: warnings, exact floating point, hidden symbols, optional sanitizers.
add_library(tpw_flags INTERFACE)
target_compile_features(tpw_flags INTERFACE c_std_17)
target_compile_options(tpw_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef>
  # bits must not depend on the optimiser: no contraction of a*b+c, no reassociation, no flushing
  $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off -fno-fast-math -fno-unsafe-math-optimizations>
  $<$<COMPILE_LANGUAGE:C>:-fvisibility=hidden>)
target_compile_definitions(tpw_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
# the same on the GPU: no contraction, no flushing, exactly rounded division and square root. Without guards around
# function statics the objects need no C++ runtime, so that the C linker can link them.
target_compile_options(tpw_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-threadsafe-statics,-fno-exceptions,-fno-rtti,-fvisibility=hidden,-Wall,-Wextra>)
if(TPW_WERROR)
  target_compile_options(tpw_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(TPW_SANITIZE)
  set(TPW_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_compile_options(tpw_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${TPW_SANITIZE_FLAGS}>)
  target_link_options(tpw_flags INTERFACE ${TPW_SANITIZE_FLAGS})
endif()
