// SPDX-License-Identifier: Apache-2.0
//
// Operators, and types of data for operators of cpu_ops.h, that libatoll has and libatoll-core does
// not: what float32 and 16x8 networks need beside what int8 ones do, and faster kernels for
// float32. They are linked apart (the library atoll_apart); no_apart_ops.cc is what stands in for
// them. Thread-safe.
#pragma once

#include <memory>
#include <span>

#include "runtime/ops/cpu_ops.h"

namespace atollrt {

// By name. An operator may be in CpuOps(), too: then the one here is asked first for data of its
// types, and leaves to the other one what it returns an empty pointer for.
std::span<const CpuOp> ApartOps();

// The executor of a CONV_2D or DEPTHWISE_CONV_2D of float32 with the geometry `shape` in the place
// of its own: that without the PAD that makes its input (PreparePaddedFilter). nullptr if there is
// none.
Result<std::unique_ptr<NodeExecutor>> PrepareUnpaddedFloatFilter(const Graph& graph,
                                                                 const Node& node,
                                                                 const ConvShape& shape,
                                                                 CpuFeatures features);

}  // namespace atollrt
