// SPDX-License-Identifier: Apache-2.0
//
// How results leave the command: tables of text or one JSON object on stdout, nothing else there.
// Every JSON report is one line and starts with "schema": 1 and "command"; a field may be added
// under the same schema number, but none removed or given another meaning.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/runtime.h"
#include "runtime/base/printable.h"
#include "tools/atoll/session.h"

namespace atollcmd {

using atollrt::Printable;
using Json = nlohmann::ordered_json;

// {"schema": 1, "command": `command`, "atoll": version}
Json NewReport(std::string_view command);
// The file that runs in the place of a model which was compiled for a Coral; null: the model runs.
Json SubstituteJson(const Session& session);
// The same with what a Session stands for: model, device, partitions in short, warnings.
Json NewReport(std::string_view command, const Session& session);

// In one line; what is no UTF-8 is replaced.
std::string JsonText(const Json& json);

// A page of HTML with `data` in the place of "{{data}}", which is within a script element.
std::string FillPage(std::string_view page, const Json& data);

// Write everything to stdout and flush; throw CommandError if that fails (disk full, closed pipe).
void PrintReport(const Json& report);
void PrintText(const std::string& text);

// One of both, as --json wants it.
template <typename MakeReport, typename MakeText>
void Print(bool json, MakeReport report, MakeText text) {
  json ? PrintReport(report()) : PrintText(text());
}

// Says on stderr where something was written; nothing of an empty `path`.
void AnnounceOutput(const char* what, const std::string& path);

std::vector<int32_t> ShapeOf(const AtollTensor* tensor);
std::string ShapeText(const AtollTensor* tensor);  // "[1,224,224,3]"
// "scale 0.0078125 zero_point 128", or "" if the tensor is not quantized per tensor.
std::string QuantizationText(const AtollTensor* tensor);
// name, dtype, shape, scale and zero_point, bytes.
Json TensorJson(const AtollTensor* tensor);

// requested, name, description.
Json DeviceJson(const Session& session);
// What a partition takes of the device, and its modelled_cycles.
Json PartitionJson(const AtollPartitionInfo& partition);
// failures, resets, reopenings, losses, replays, fallbacks: of an AtollDeviceHealth or its like.
template <typename Health>
Json HealthJson(const Health& health) {
  return {{"failures", health.failures},     {"resets", health.resets},
          {"reopenings", health.reopenings}, {"losses", health.losses},
          {"replays", health.replays},       {"fallbacks", health.fallbacks}};
}

std::string Thousands(int64_t number);    // "1,234,567"
std::string ByteSizeText(int64_t bytes);  // "3.49 MB" (10^6), "512 bytes"

// A float as its own shortest decimal form: as double it would print 0.007812500186264515.
double ShortestDouble(float value);
// Milliseconds for JSON, rounded to whole nanoseconds.
double RoundedMs(double ms);

}  // namespace atollcmd
