// SPDX-License-Identifier: Apache-2.0
//
// What is known of a partition once it is compiled: written by the delegate, handed through to
// users by the C interface. Nothing between the two reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atollrt {

// Where the modelled time of one inference on a device goes, in seconds. Link and units work side
// by side, so the parts may add up to more than the total.
struct ModelledLatency {
  double total = 0;
  double host = 0;        // submitting and collecting the request
  double link_out = 0;    // inputs on their way to the device
  double parameters = 0;  // streamed parameters on their way to the device
  double array = 0;       // the array is busy
  double vector = 0;      // the vector unit is busy
  double dma = 0;         // bytes are moved on chip
  double link_in = 0;     // outputs on their way to the host
};

// Bytes of a device's on-chip memory that are reserved for something during some instructions of a
// partition's program.
struct OnChipBlock {
  enum class Kind : uint8_t { kTensor, kResidentParameters, kStreamedParameters, kScratch };
  Kind kind = Kind::kTensor;
  int32_t tensor = -1;  // kTensor
  int32_t node = -1;    // that writes the tensor (-1: an input) or owns the parameters or scratch
  int64_t offset = 0;   // in the parameter segment for kResidentParameters, else in the other one
  int64_t bytes = 0;
  int32_t first_instruction = 0;
  int32_t last_instruction = 0;
};

// What is known of a partition once it is compiled; numbers are per inference.
struct PartitionReport {
  int32_t instruction_count = 0;
  int64_t resident_parameter_bytes = 0;
  int64_t streamed_parameter_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int64_t estimated_cycles = 0;  // modelled, from the start message to the last output byte
  ModelledLatency latency;
  // What it costs to load it onto a device on which it is not, or no longer, resident.
  int64_t program_bytes = 0;
  int64_t upload_bytes = 0;         // over the link, all records
  double upload_seconds = 0;        // modelled
  std::vector<OnChipBlock> memory;  // empty if the partition came compiled with the model
  std::string note;                 // what a user should know; empty if nothing
};

}  // namespace atollrt
