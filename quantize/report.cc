// SPDX-License-Identifier: Apache-2.0
#include "quantize/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace atollrt {
namespace {

using Json = nlohmann::ordered_json;

Json Decibels(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json ToJson(const QuantizeReport::End& end) {
  return {{"name", end.name},
          {"range", {end.low, end.high}},
          {"scale", end.scale},
          {"zero_point", end.zero_point},
          {"type", end.type}};
}

Json ToJson(const QuantizeReport::Layer& layer) {
  return {{"index", layer.index},
          {"operator", layer.operation},
          {"name", layer.name},
          {"type", layer.type},
          {"reason", layer.reason},
          {"range", {layer.low, layer.high}},
          {"histogram", layer.histogram},
          {"scale", layer.scale},
          {"zero_point", layer.zero_point},
          {"sqnr_alone_db", Decibels(layer.sqnr_alone_db)},
          {"sqnr_accumulated_db", Decibels(layer.sqnr_accumulated_db)}};
}

template <typename T>
Json List(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(ToJson(item));
  return list;
}

}  // namespace

std::string ToJson(const QuantizeReport& report) {
  Json options = Json::object();
  for (const auto& [name, value] : report.options) options[name] = value;
  Json worst = Json::array();
  for (const QuantizeReport::Sample& sample : report.worst) {
    worst.push_back({{"sample", sample.sample}, {"sqnr_db", Decibels(sample.sqnr_db)}});
  }
  Json outputs = List(report.outputs);
  for (Json& output : outputs) output["parts"] = Json::array();
  for (const QuantizeReport::Part& part : report.parts) {
    outputs[part.output]["parts"].push_back({{"layer", part.layer},
                                             {"name", part.name},
                                             {"range", {part.low, part.high}},
                                             {"sqnr_db", Decibels(part.sqnr_db)}});
  }
  const Json json = {
      {"model", report.model},
      {"bytes_before", report.bytes_before},
      {"bytes_after", report.bytes_after},
      {"inputs", List(report.inputs)},
      {"outputs", outputs},
      {"calibration", {{"samples", report.samples}, {"warnings", report.warnings}}},
      {"layers", List(report.layers)},
      {"options", options},
      {"choices", report.choices},
      {"logits_sqnr_db", Decibels(report.logits_sqnr_db)},
      {"output_sqnr_db", Decibels(report.output_sqnr_db)},
      {"worst", worst},
  };
  // Names come from files: what is no UTF-8 is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace atollrt
