// What a launch moves to and from global memory, counted access by access. See counters.cpp.
#pragma once

#include "block.h"

namespace emu {

void count_barrier(u32 warps);    // all warps of the block come together
void count_warp_point(u32 warp);  // lanes of one warp do

}  // namespace emu
