// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "tools/atoll/model_inputs.h"
#include "tools/atoll/output_files.h"
#include "tools/atoll/output_path.h"
#include "tools/atoll/percentile.h"
#include "tools/atoll/profile_data.h"
#include "tools/atoll/profile_page.h"
#include "tools/atoll/profile_trace.h"
#include "tools/atoll/progress.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

struct ProfileOptions {
  SessionOptions session;
  int runs = 10;
  size_t top = 15;
  std::string trace;
  std::string report;
  bool json = false;
};

// The layers that add the most to the modelled time; on the CPU alone those that take the longest.
std::vector<size_t> Slowest(const Profile& profile) {
  std::vector<size_t> order(profile.layers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const LayerProfile& x = profile.layers[a];
    const LayerProfile& y = profile.layers[b];
    return profile.device.empty() ? x.host_ms > y.host_ms : x.added_cycles > y.added_cycles;
  });
  return order;
}

// Converters join the names of everything that they fused.
std::string ShortName(const std::string& name) {
  constexpr size_t kMost = 60;
  const std::string first = name.substr(0, name.find(';'));
  return Printable(first.size() <= kMost ? first : first.substr(0, kMost) + "...");
}

std::string Bar(double share) {
  constexpr double kWidth = 40;
  const auto length = static_cast<size_t>(share * kWidth + 0.5);
  return length == 0 ? "" : "  " + std::string(length, '#');
}

void AddLatencyText(const Profile& profile, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(out,
                 "\nmodelled {:.3f} ms per inference on the device, of which the end waits for\n",
                 profile.modelled_seconds * 1e3);
  for (size_t part = 0; part < kPartCount; ++part) {
    const double seconds = profile.part_seconds[part];
    if (seconds == 0) continue;
    const double share = seconds / profile.modelled_seconds;
    fmt::format_to(out, "  {:<10} {:>9.4f} ms {:>5.1f}%{}\n", PartName(static_cast<Part>(part)),
                   seconds * 1e3, share * 100, Bar(share));
  }
  fmt::format_to(
      out,
      "array    {:.1f}% of its {} multiply-accumulates a cycle while it is busy, {:.1f}% "
      "of the whole inference\n",
      profile.array_utilisation() * 100,
      Thousands(int64_t{profile.device_info.array_rows} * profile.device_info.array_columns),
      profile.whole_utilisation() * 100);
}

void AddLayersText(const Profile& profile, size_t count, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(
      out, "\n{} slowest layers, modelled\n  {:>4} {:<24} {:>9} {:>6} {:>10} {:>10} {:>6}  {}\n",
      count, "node", "operator", "ms", "share", "MMAC", "MAC/cycle", "peak", "output");
  const double clock = static_cast<double>(profile.device_info.clock_hz);
  const std::vector<size_t> order = Slowest(profile);
  for (size_t i = 0; i < count; ++i) {
    const LayerProfile& layer = profile.layers[order[i]];
    const double seconds = static_cast<double>(layer.added_cycles) / clock;
    const double cycles = static_cast<double>(std::max<int64_t>(layer.compute_cycles(), 1));
    if (layer.added_cycles == 0) break;
    fmt::format_to(out, "  {:>4} {:<24} {:>9.4f} {:>5.1f}% {:>10.3f} {:>10.1f} {:>5.1f}%  {} {}\n",
                   order[i], Printable(layer.op), seconds * 1e3,
                   seconds / profile.modelled_seconds * 100, static_cast<double>(layer.macs) / 1e6,
                   static_cast<double>(layer.computed_macs) / cycles,
                   profile.Utilisation(layer.computed_macs, layer.compute_cycles()) * 100,
                   layer.shape, ShortName(layer.output));
  }
}

void AddHostText(const Profile& profile, size_t count, std::string* text) {
  auto out = std::back_inserter(*text);
  std::vector<double> sorted = profile.run_ms;
  std::sort(sorted.begin(), sorted.end());
  fmt::format_to(out,
                 "\nmeasured on this host, {} runs with a trace: min {:.3f}  median {:.3f}  max "
                 "{:.3f} ms\n",
                 sorted.size(), sorted.front(), Percentile(sorted, 50), sorted.back());
  for (size_t i = 0; i < profile.partitions.size(); ++i) {
    fmt::format_to(out, "  partition {:<14} {:>9.4f} ms to submit and to wait\n", i,
                   profile.partitions[i].submit_ms + profile.partitions[i].wait_ms);
  }
  std::vector<size_t> order(profile.layers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return profile.layers[a].host_ms > profile.layers[b].host_ms;
  });
  for (size_t i = 0; i < std::min(count, order.size()); ++i) {
    const LayerProfile& layer = profile.layers[order[i]];
    if (layer.host_ms == 0) break;
    fmt::format_to(out, "  {:>4} {:<19} {:>9.4f} ms on the CPU  {} {}\n", order[i],
                   Printable(layer.op), layer.host_ms, layer.shape, ShortName(layer.output));
  }
}

std::string ReportText(const Session& session, const ProfileOptions& options,
                       const Profile& profile) {
  std::string text =
      fmt::format("model    {}\ndevice   {}: {}\nplan     {}\n", session.options().model,
                  session.device_name(), session.device_description(), session.PartitionSummary());
  const size_t count = std::min(options.top, profile.layers.size());
  if (!profile.device.empty()) {
    AddLatencyText(profile, &text);
    AddLayersText(profile, count, &text);
  }
  AddHostText(profile, count, &text);
  return text;
}

void RunProfile(const ProfileOptions& options) {
  if (!options.trace.empty()) CheckOutputFile("--trace", options.trace);
  if (!options.report.empty()) CheckOutputFile("--report", options.report);
  Session session(options.session);
  FillInputs(session, /*seed=*/1, {});
  session.Announce();
  std::optional<Progress> progress;
  progress.emplace(fmt::format("profiling '{}'", options.session.model));
  const Profile profile = TakeProfile(&session, options.runs);
  progress.reset();

  OutputFiles files;
  const auto write = [&](const char* option, const std::string& path, const std::string& content) {
    files.Add(option, path, content.data(), content.size());
  };
  if (!options.trace.empty()) write("--trace", options.trace, JsonText(TraceJson(profile)) + "\n");
  if (!options.report.empty()) write("--report", options.report, ProfilePage(session, profile));
  files.Commit();
  if (options.json) {
    PrintReport(ProfileJson(session, profile));
  } else {
    PrintText(ReportText(session, options, profile));
  }
}

}  // namespace

void AddProfileCommand(CLI::App* app) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = app->add_subcommand(
      "profile", "Where the time of an inference goes, on the host and on the device.");
  AddSessionOptions(command, &options->session);
  command->add_option("--runs", options->runs, "traced inferences, after one that is not")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--top", options->top, "layers in the table")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--trace", options->trace,
                      "write the trace there, JSON for ui.perfetto.dev or chrome://tracing");
  command->add_option("--report", options->report,
                      "write a page there, HTML that needs no other file");
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "Two kinds of time, never mixed: 'modelled' is what the timing model of the device says,\n"
      "'measured' what passed on this host, inputs filled from seed 1. With the emulator they\n"
      "have nothing in common. Units of the device work side by side; a part's share of the\n"
      "modelled time is what the end of the inference waits for. 'peak' is multiply-accumulates\n"
      "as a share of what the array could do in the cycles that the layer computes.\n"
      "docs/profiling.md explains the trace, the page and the numbers.\n"
      "\n"
      "Examples:\n"
      "  atoll profile model.tflite\n"
      "  atoll profile model.tflite --device emu:usb2 --report profile.html\n"
      "  atoll profile model.tflite --runs 50 --trace trace.json --json");
  command->callback([options] { RunProfile(*options); });
}

}  // namespace atollcmd
