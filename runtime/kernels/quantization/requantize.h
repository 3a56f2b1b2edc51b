// SPDX-License-Identifier: Apache-2.0
//
// The output stage (OutputColumns) for the instruction set that a file is compiled for; for
// inclusion by kernels' ISA files only: everything is in an unnamed namespace, so no copy of it can
// end up in code for other CPUs. Under the same names each set has
//
//   Vector, kLanes                    a register of int32
//   LoadVector, StoreVector           at any alignment; likewise StoreBytes of a ByteVector
//   Scale, LoadScale<Epilogue>        what kLanes neighbouring columns need, kept in registers
//   Rescale<Epilogue>(x, scale)       accumulators to values before the zero point and the clamp
//   Bytes, LoadBytes, ToBytes         four Vectors of values to a ByteVector: the bytes of the
//   first
//                                     Vector, then those of the second, third and fourth
#pragma once

#if defined(__AVX512BW__)
#include "runtime/kernels/quantization/requantize_avx512.h"
#elif defined(__AVX2__)
#include "runtime/kernels/quantization/requantize_avx2.h"
#elif defined(__aarch64__)
#include "runtime/kernels/quantization/requantize_neon.h"
#endif

namespace atollrt {
namespace {

#if defined(__AVX2__)
// The greatest of kVectors * kLanes columns from `column` on.
template <int kVectors>
inline FloatForm FormOf(const OutputColumns& columns, int32_t column) {
  static_assert(kLanes % OutputColumns::kFloatBlock == 0);
  const FloatForm* const forms = columns.forms + column / OutputColumns::kFloatBlock;
  FloatForm form = forms[0];
  for (int i = 1; i < kVectors * kLanes / OutputColumns::kFloatBlock; ++i) {
    form = forms[i] > form ? forms[i] : form;
  }
  return form;
}
#endif

// Whether no part of kLanes columns needs a slower form than others.
template <int kVectors>
inline bool IsUniform([[maybe_unused]] const OutputColumns& columns,
                      [[maybe_unused]] int32_t column) {
#if defined(__AVX2__)
  if (columns.mode == RequantizeMode::kDouble) return true;
  const FloatForm form = FormOf<kVectors>(columns, column);
  for (int i = 0; i < kVectors; ++i) {
    if (FormOf<1>(columns, column + i * kLanes) != form) return false;
  }
#endif
  return true;
}

// The one that serves kVectors * kLanes columns from `column` on, if they are wide_vectorizable.
template <int kVectors>
inline Epilogue EpilogueOf(const OutputColumns& columns, int32_t column) {
  if (columns.mode == RequantizeMode::kDouble) return Epilogue::kDouble;
#if defined(__AVX2__)
  const FloatForm form = FormOf<kVectors>(columns, column);
  if (form == FloatForm::kPositive) return Epilogue::kFloatPositive;
  if (form == FloatForm::kAny) return Epilogue::kFloat;
#endif
  return columns.vectorizable[column / OutputColumns::kBlock] == 0 ? Epilogue::kWide
                                                                   : Epilogue::kFixedPoint;
}

// visit.operator()<Epilogue>() with it.
template <int kVectors, typename Visit>
inline void WithEpilogue(const OutputColumns& columns, int32_t column, const Visit& visit) {
  switch (EpilogueOf<kVectors>(columns, column)) {
#if defined(__AVX2__)
    case Epilogue::kFloatPositive:
      return visit.template operator()<Epilogue::kFloatPositive>();
    case Epilogue::kFloat:
      return visit.template operator()<Epilogue::kFloat>();
#else
    case Epilogue::kFloatPositive:
    case Epilogue::kFloat:
      __builtin_unreachable();
#endif
    case Epilogue::kFixedPoint:
      return visit.template operator()<Epilogue::kFixedPoint>();
    case Epilogue::kWide:
      return visit.template operator()<Epilogue::kWide>();
    case Epilogue::kDouble:
      return visit.template operator()<Epilogue::kDouble>();
  }
}

}  // namespace
}  // namespace atollrt
