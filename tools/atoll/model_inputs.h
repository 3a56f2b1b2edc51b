// SPDX-License-Identifier: Apache-2.0
//
// Where `atoll run` and `atoll benchmark` take a model's inputs from: files of raw bytes, or a
// seed.
//
// Seed S: every input restarts its own splitmix64 at state = S. The bytes of an integer tensor are
// those of the numbers in turn, each as 8 bytes, least significant first, the last number cut off;
// bool is the lowest bit of each byte; float32 is one number per element,
// (next() >> 40) / 2^24 * 2 - 1, so in [-1, 1). The same stream everywhere makes runs comparable
// between devices, machines and other runtimes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "tools/atoll/session.h"

namespace atollcmd {

void FillFromSeed(uint64_t seed, AtollTensor* tensor);

// Fills all inputs from `seed`, apart from those that `files` names ("0=image.raw": the index of
// the input and a file of exactly its bytes).
void FillInputs(const Session& session, uint64_t seed, const std::vector<std::string>& files);

}  // namespace atollcmd
