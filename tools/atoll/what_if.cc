// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <string_view>

#include "atoll/delegate.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/input_shape.h"

namespace atollcmd {
namespace {

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t comma = text.find(',', begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return parts;
    begin = comma + 1;
  }
}

CLI::Validator InputShapesText() {
  return {[](std::string& text) {
            for (std::string& part : SplitAtCommas(text)) {
              if (std::string error = InputShapeText()(part); !error.empty()) return error;
            }
            return std::string();
          },
          "[NAME=]SHAPE[,...]"};
}

CLI::Validator DeviceWithTimes() {
  return {[](std::string& text) {
            return text == "cpu" ? "'cpu' has no modelled times; name a device, for example "
                                   "emu:usb2, or all"
                                 : "";
          },
          "DEVICE"};
}

std::vector<std::string> EmulatorProfiles() {
  const AtollDeviceInfo* devices = nullptr;
  int32_t count = 0;
  ThrowIfError(AtollListDevices(&devices, &count), Activity::kOpeningDevice, "cannot list devices");
  std::vector<std::string> profiles;
  for (const AtollDeviceInfo& device : std::span(devices, count)) {
    const std::string_view name = device.name;
    if (name == "emu" || name.starts_with("emu:")) profiles.emplace_back(name);
  }
  return profiles;
}

std::string SizesText(const AtollTensor* tensor) {
  std::vector<int32_t> sizes;
  for (int32_t i = 0; i < AtollTensorNumDims(tensor); ++i) {
    sizes.push_back(AtollTensorDim(tensor, i));
  }
  return fmt::format("{}", fmt::join(sizes, "x"));
}

}  // namespace

void AddWhatIfOptions(CLI::App* app, WhatIfOptions* options) {
  app->add_option("--profile", options->profiles,
                  "also the modelled figures on this device, for example emu:usb2; all: every "
                  "profile of the emulator; repeatable")
      ->allow_extra_args(false)
      ->check(DeviceWithTimes());
  app->add_option("--what-if", options->shapes,
                  "also the modelled figures with these shapes of inputs, each as for "
                  "--input-shape; repeatable")
      ->allow_extra_args(false)
      ->check(InputShapesText());
}

WhatIfTable::Row WhatIfTable::ReadRow(const Session& session) {
  Row row;
  std::vector<std::string> shapes;
  for (const AtollTensor* input : session.inputs()) shapes.push_back(SizesText(input));
  row.shapes = fmt::format("{}", fmt::join(shapes, ","));
  for (const AtollNodeInfo& node : session.nodes()) {
    ++row.nodes;
    row.nodes_on_device += node.partition >= 0;
    row.macs += node.macs;
  }
  for (const AtollPartitionInfo& partition : session.partitions()) {
    ++row.partitions;
    row.cycles += partition.estimated_cycles;
    row.resident_bytes += partition.resident_parameter_bytes;
    row.streamed_bytes += partition.streamed_parameter_bytes;
    // Partitions share this memory.
    row.activation_bytes = std::max(row.activation_bytes, partition.activation_bytes);
    const AtollModelledLatency& latency = partition.latency;
    row.seconds.total += latency.total;
    row.seconds.host += latency.host;
    row.seconds.link_out += latency.link_out;
    row.seconds.parameters += latency.parameters;
    row.seconds.array += latency.array;
    row.seconds.vector += latency.vector;
    row.seconds.dma += latency.dma;
    row.seconds.link_in += latency.link_in;
  }
  if (!session.on_device()) {
    row.reason = "the CPU has no modelled times";
  } else if (row.partitions == 0) {
    row.reason = row.nodes == 0 ? "the model has no operators"
                                : fmt::format("nothing runs on the device: {}",
                                              session.nodes().front().reason);
  }
  return row;
}

WhatIfTable::WhatIfTable(const Session& session, const WhatIfOptions& options) {
  std::vector<std::string> devices = {session.device_name()};
  for (const std::string& profile : options.profiles) {
    for (const std::string& device :
         profile == "all" ? EmulatorProfiles() : std::vector<std::string>{profile}) {
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
        devices.push_back(device);
      }
    }
  }
  std::vector<std::vector<std::string>> shapes = {session.options().input_shapes};
  for (const std::string& text : options.shapes) shapes.push_back(SplitAtCommas(text));

  for (const std::string& device : devices) {
    for (const std::vector<std::string>& given : shapes) {
      SessionOptions what_if = session.options();
      what_if.device = device;
      what_if.input_shapes = given;
      Row row;
      try {
        row = rows_.empty() ? ReadRow(session) : ReadRow(Session(what_if));
      } catch (const CommandError& error) {
        if (error.code() != ExitCode::kBadModel) throw;
        // The library's sentence alone: of the model, the report speaks all along.
        const std::string_view sentence = AtollLastError();
        const std::string model = fmt::format("model '{}': ", what_if.model);
        row.reason = sentence.substr(sentence.starts_with(model) ? model.size() : 0);
      }
      row.device = device;
      row.given = given;
      if (row.shapes.empty()) row.shapes = fmt::format("{}", fmt::join(given, ","));
      rows_.push_back(std::move(row));
    }
  }
}

Json WhatIfTable::ToJson() const {
  const auto ms = [](double seconds) { return RoundedMs(seconds * 1e3); };
  Json rows = Json::array();
  for (const Row& row : rows_) {
    Json json = {{"device", row.device}, {"input_shapes", row.given}, {"shapes", row.shapes}};
    json["reason"] = row.reason;
    json["modelled_ms"] = row.partitions > 0 ? Json(ms(row.seconds.total)) : Json();
    if (row.partitions > 0) {
      json["modelled_parts_ms"] = {{"host", ms(row.seconds.host)},
                                   {"link_out", ms(row.seconds.link_out)},
                                   {"parameters", ms(row.seconds.parameters)},
                                   {"array", ms(row.seconds.array)},
                                   {"vector", ms(row.seconds.vector)},
                                   {"dma", ms(row.seconds.dma)},
                                   {"link_in", ms(row.seconds.link_in)}};
      json["modelled_cycles"] = row.cycles;
    } else {
      json["modelled_parts_ms"] = nullptr;
      json["modelled_cycles"] = nullptr;
    }
    json["macs"] = row.macs;
    json["nodes"] = row.nodes;
    json["nodes_on_device"] = row.nodes_on_device;
    json["partition_count"] = row.partitions;
    json["on_chip_bytes"] = row.resident_bytes + row.activation_bytes;
    json["resident_parameter_bytes"] = row.resident_bytes;
    json["activation_bytes"] = row.activation_bytes;
    json["streamed_parameter_bytes"] = row.streamed_bytes;
    rows.push_back(std::move(json));
  }
  return rows;
}

std::string WhatIfTable::ToText() const {
  size_t device_width = 6, shape_width = 6;
  for (const Row& row : rows_) {
    device_width = std::max(device_width, row.device.size());
    shape_width = std::max(shape_width, row.shapes.size());
  }
  std::string text =
      "\nwhat if: modelled ms per inference, not measured. Link and units work side by side, so "
      "the\n"
      "parts may add up to more than the total; operators on the CPU are not in it\n";
  auto out = std::back_inserter(text);
  fmt::format_to(out,
                 "  {:<{}}  {:<{}}  {:>9} {:>7} {:>8} {:>7} {:>8} {:>8} {:>7} {:>7}  {:>13}  {:>9} "
                 "{:>5}  {:>9}  {:>9}\n",
                 "device", device_width, "inputs", shape_width, "total", "host", "link out",
                 "params", "array", "vector", "dma", "link in", "cycles", "operators", "parts",
                 "on chip", "streamed");
  for (const Row& row : rows_) {
    fmt::format_to(out, "{} {:<{}}  {:<{}}  ", &row == rows_.data() ? '*' : ' ', row.device,
                   device_width, row.shapes, shape_width);
    if (row.partitions == 0) {
      fmt::format_to(out, "{}\n", Printable(row.reason));
      continue;
    }
    const AtollModelledLatency& s = row.seconds;
    fmt::format_to(
        out,
        "{:>9.3f} {:>7.3f} {:>8.3f} {:>7.3f} {:>8.3f} {:>8.3f} {:>7.3f} {:>7.3f}  {:>13}  {:>9} "
        "{:>5}  {:>9}  {:>9}\n",
        s.total * 1e3, s.host * 1e3, s.link_out * 1e3, s.parameters * 1e3, s.array * 1e3,
        s.vector * 1e3, s.dma * 1e3, s.link_in * 1e3, Thousands(row.cycles),
        fmt::format("{}/{}", row.nodes_on_device, row.nodes), row.partitions,
        ByteSizeText(row.resident_bytes + row.activation_bytes), ByteSizeText(row.streamed_bytes));
  }
  return text + "* as it is now\n";
}

}  // namespace atollcmd
