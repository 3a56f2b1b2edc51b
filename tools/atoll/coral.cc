// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/coral.h"

#include <fmt/format.h>

#include <utility>

#include "tools/atoll/exit_code.h"

namespace atollcmd {

CoralReport::CoralReport(const AtollModel* model, std::string host) : host_(std::move(host)) {
  const AtollStatus status = AtollEstimateCoral(model, host_.c_str(), &estimate_);
  if (status == ATOLL_NOT_FOUND) {
    throw CommandError(ExitCode::kUsage, fmt::format("--coral: {}", AtollLastError()));
  }
  ThrowIfError(status, Activity::kPreparing, "cannot predict a Coral's time");
}

Json CoralReport::ToJson() const {
  const AtollCoralEstimate& e = estimate_;
  const auto ms = [](double seconds) { return RoundedMs(seconds * 1e3); };
  return {{"host", host_},
          {"modelled_ms", ms(e.seconds)},
          {"breakdown_ms",
           {{"host", ms(e.host_seconds)},
            {"link_out", ms(e.link_out_seconds)},
            {"dense", ms(e.dense_seconds)},
            {"vector", ms(e.vector_seconds)},
            {"layers", ms(e.layer_seconds)},
            {"parameters", ms(e.parameter_seconds)},
            {"link_in", ms(e.link_in_seconds)}}},
          {"upload_ms", ms(e.upload_seconds)},
          {"instruction_bytes", e.instruction_bytes},
          {"input_bytes", e.input_bytes},
          {"output_bytes", e.output_bytes},
          {"cached_parameter_bytes", e.cached_parameter_bytes},
          {"streamed_parameter_bytes", e.streamed_parameter_bytes},
          {"nodes_on_device", e.device_node_count},
          {"nodes_on_host", e.host_node_count}};
}

std::string CoralReport::ToText() const {
  const AtollCoralEstimate& e = estimate_;
  std::string text = fmt::format(
      "a real Coral on {} (modelled, not measured; docs/fidelity.md): {:.3f} ms per inference\n"
      "    host        {:.3f} ms\n"
      "    link        {:.3f} ms out: {} of instructions, {} of inputs; {:.3f} ms in: {}\n"
      "    computation {:.3f} ms dense, {:.3f} ms depthwise and element-wise, {:.3f} ms for {} "
      "layers\n"
      "    parameters  {:.3f} ms waiting for {} streamed; {} cached, uploaded in {:.3f} ms\n",
      host_, e.seconds * 1e3, e.host_seconds * 1e3, e.link_out_seconds * 1e3,
      ByteSizeText(e.instruction_bytes), ByteSizeText(e.input_bytes), e.link_in_seconds * 1e3,
      ByteSizeText(e.output_bytes), e.dense_seconds * 1e3, e.vector_seconds * 1e3,
      e.layer_seconds * 1e3, e.device_node_count, e.parameter_seconds * 1e3,
      ByteSizeText(e.streamed_parameter_bytes), ByteSizeText(e.cached_parameter_bytes),
      e.upload_seconds * 1e3);
  if (e.host_node_count > 0) {
    text += fmt::format("    not in it   {} of {} operators, which the host's CPU would run\n",
                        e.host_node_count, e.host_node_count + e.device_node_count);
  }
  return text;
}

}  // namespace atollcmd
