// SPDX-License-Identifier: Apache-2.0
//
// Float models on one thread: milliseconds, GFLOP/s, and how much of what this CPU could multiply
// and add that is, with vectors of 8 and of 16 floats measured in the same run. Beside them what
// XNNPACK takes elsewhere (a Zen 3 without AVX-512, whose two units of 8 floats at 3.24 GHz make
// 103.7 GFLOP/s), scaled to the peak of 8 floats here.
//
//   float_models FOLDER      the folder with mlperf_tiny_resnet8_float.tflite and the others
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "atoll/runtime.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

#if defined(__x86_64__)
// Independent sums, enough to keep all units busy.
#define ATOLL_PEAK(Name, Vector, features, set1, fmadd)                         \
  __attribute__((target(features))) double Name(float what) {                   \
    constexpr int kSums = 10;                                                   \
    constexpr int kRounds = 1'000'000;                                          \
    double best = 0;                                                            \
    for (int trial = 0; trial < 20; ++trial) {                                  \
      const Vector x = set1(what);                                              \
      Vector sums[kSums];                                                       \
      for (Vector & sum : sums) sum = x;                                        \
      const Clock::time_point start = Clock::now();                             \
      for (int i = 0; i < kRounds; ++i) {                                       \
        _Pragma("GCC unroll 10") for (int k = 0; k < kSums; ++k) {              \
          sums[k] = fmadd(sums[k], x, x);                                       \
        }                                                                       \
      }                                                                         \
      const double seconds = SecondsSince(start);                               \
      for (const Vector& sum : sums) {                                          \
        float sink[sizeof(Vector) / sizeof(float)];                             \
        std::memcpy(sink, &sum, sizeof(sum));                                   \
        if (sink[0] == 0) return 0; /* never, which the compiler cannot know */ \
      }                                                                         \
      constexpr double kOperations = 2.0 * kSums * (sizeof(Vector) / 4.0);      \
      best = std::max(best, kOperations * kRounds / seconds * 1e-9);            \
    }                                                                           \
    return best;                                                                \
  }
ATOLL_PEAK(PeakOf8, __m256, "avx2,fma", _mm256_set1_ps, _mm256_fmadd_ps)
ATOLL_PEAK(PeakOf16, __m512, "avx512f,fma", _mm512_set1_ps, _mm512_fmadd_ps)

double Peak8() { return __builtin_cpu_supports("fma") ? PeakOf8(0.5f) : 0; }
double Peak16() { return __builtin_cpu_supports("avx512f") ? PeakOf16(0.5f) : 0; }
#else
double Peak8() { return 0; }
double Peak16() { return 0; }
#endif

struct Model {
  const char* name;
  const char* file;
  int32_t side;  // of the input; 0: as in the file
  double million_macs;
  double xnnpack_ms;
};
constexpr Model kModels[] = {
    {"resnet8", "mlperf_tiny_resnet8_float.tflite", 0, 12.5, 0.36},
    {"vww_96", "mlperf_tiny_vww_96_float.tflite", 0, 7.5, 0.22},
    {"mobilenet_v1_0.25_224", "mobilenet_v1_0.25_224_float.tflite", 0, 41.0, 1.73},
    {"rfb320", "rfb320_float.tflite", 0, 97.8, 3.18},
    {"edsr_f32b5 at 96x96", "edsr_f32b5_float.tflite", 96, 974, 21.5},
};

// The median of `runs`; negative if the model cannot be run.
double MedianMs(const std::string& path, int32_t side) {
  AtollModel* model = nullptr;
  AtollInterpreter* interpreter = nullptr;
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = 1;
  const int32_t dims[] = {1, side, side, 3};
  double median = -1;
  if (AtollModelCreateFromFile(path.c_str(), &model) == ATOLL_OK &&
      AtollInterpreterCreate(model, &options, &interpreter) == ATOLL_OK &&
      (side == 0 || (AtollInterpreterResizeInput(interpreter, 0, dims, 4) == ATOLL_OK &&
                     AtollInterpreterAllocateTensors(interpreter) == ATOLL_OK))) {
    std::vector<double> times;
    for (int i = 0; i < 60; ++i) {
      const Clock::time_point start = Clock::now();
      if (AtollInterpreterInvoke(interpreter) != ATOLL_OK) break;
      if (i >= 10) times.push_back(SecondsSince(start) * 1e3);
    }
    std::sort(times.begin(), times.end());
    if (!times.empty()) median = times[times.size() / 2];
  }
  if (median < 0) std::fprintf(stderr, "%s: %s\n", path.c_str(), AtollLastError());
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
  return median;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  constexpr double kTheirPeak = 103.7;
  const double peak8 = Peak8();
  const double peak16 = Peak16();
  std::printf("peak of one thread: %.1f GFLOP/s with 8 floats, %.1f with 16\n\n", peak8, peak16);
  std::printf(
      "| model | ms | GFLOP/s | of the peak | XNNPACK scaled, ms | ratio "
      "|\n|---|---|---|---|---|---|\n");
  bool all = true;
  for (const Model& model : kModels) {
    const double ms = MedianMs(std::string(argv[1]) + "/" + model.file, model.side);
    all = all && ms > 0;
    if (ms < 0) continue;
    const double rate = 2 * model.million_macs / ms;
    const double theirs = peak8 > 0 ? model.xnnpack_ms * kTheirPeak / peak8 : 0;
    const double peak = std::max(peak8, peak16);
    std::printf("| %s | %.3f | %.0f | %.0f %% | %.3f | %.2f |\n", model.name, ms, rate,
                peak > 0 ? 100 * rate / peak : 0, theirs, theirs > 0 ? ms / theirs : 0);
  }
  return all ? 0 : 1;
}
