// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/quantize_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "atoll/picture.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/measure.h"

namespace atollcmd {
namespace {

template <typename T>
void WriteAs(const std::vector<float>& values, AtollQuantization quantization,
             AtollTensor* tensor) {
  T* const data = static_cast<T*>(AtollTensorData(tensor));
  for (size_t i = 0; i < values.size(); ++i) {
    const double stored =
        std::round(static_cast<double>(values[i]) / quantization.scale) + quantization.zero_point;
    data[i] = static_cast<T>(std::clamp<double>(std::isnan(stored) ? 0 : stored,
                                                std::numeric_limits<T>::min(),
                                                std::numeric_limits<T>::max()));
  }
}

void Write(const std::vector<float>& values, AtollTensor* tensor) {
  const AtollQuantization quantization = AtollTensorQuantization(tensor);
  switch (AtollTensorType(tensor)) {
    case ATOLL_INT8:
      return WriteAs<int8_t>(values, quantization, tensor);
    case ATOLL_UINT8:
      return WriteAs<uint8_t>(values, quantization, tensor);
    case ATOLL_INT16:
      return WriteAs<int16_t>(values, quantization, tensor);
    default:
      std::memcpy(AtollTensorData(tensor), values.data(),
                  std::min(values.size() * sizeof(float), AtollTensorByteSize(tensor)));
  }
}

template <typename T>
std::vector<double> ReadAs(const AtollTensor* tensor, AtollQuantization quantization) {
  const T* const data = static_cast<const T*>(AtollTensorConstData(tensor));
  std::vector<double> values(AtollTensorByteSize(tensor) / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = quantization.scale == 0
                    ? static_cast<double>(data[i])
                    : static_cast<double>(quantization.scale) *
                          (static_cast<double>(data[i]) - quantization.zero_point);
  }
  return values;
}

std::vector<double> Read(const AtollTensor* tensor) {
  const AtollQuantization quantization = AtollTensorQuantization(tensor);
  switch (AtollTensorType(tensor)) {
    case ATOLL_FLOAT32:
      return ReadAs<float>(tensor, quantization);
    case ATOLL_INT8:
      return ReadAs<int8_t>(tensor, quantization);
    case ATOLL_UINT8:
      return ReadAs<uint8_t>(tensor, quantization);
    case ATOLL_INT16:
      return ReadAs<int16_t>(tensor, quantization);
    default:
      return {};
  }
}

}  // namespace

LoadedModel::LoadedModel(std::string_view bytes, const std::string& what, const char* device,
                         int threads) {
  AtollModel* model = nullptr;
  ThrowIfError(AtollModelCreateFromBuffer(bytes.data(), bytes.size(), &model),
               Activity::kLoadingModel, "cannot load " + what);
  model_.reset(model);
  Prepare(what, device, threads);
}

LoadedModel::LoadedModel(const std::string& path, const char* device, int threads) {
  AtollModel* model = nullptr;
  const std::string what = "'" + path + "'";
  ThrowIfError(AtollModelCreateFromFile(path.c_str(), &model), Activity::kLoadingModel,
               "cannot load " + what);
  model_.reset(model);
  Prepare(what, device, threads);
}

void LoadedModel::Prepare(const std::string& what, const char* device, int threads) {
  AtollDelegateOptions how = ATOLL_DELEGATE_OPTIONS_INIT;
  how.device = device;
  how.num_threads = threads;
  AtollDelegate* delegate = nullptr;
  ThrowIfError(AtollDelegateCreate(&how, &delegate), Activity::kOpeningDevice,
               fmt::format("cannot open '{}'", device));
  delegate_.reset(delegate);
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = threads;
  options.delegate = delegate;
  AtollInterpreter* interpreter = nullptr;
  ThrowIfError(AtollInterpreterCreate(model_.get(), &options, &interpreter), Activity::kPreparing,
               "cannot prepare " + what);
  interpreter_.reset(interpreter);
}

std::vector<double> LoadedModel::Run(const Sample& sample) const {
  for (size_t i = 0; i < sample.size(); ++i) {
    Write(sample[i], AtollInterpreterGetInputTensor(interpreter(), static_cast<int32_t>(i)));
  }
  ThrowIfError(AtollInterpreterInvoke(interpreter()), Activity::kRunning, "cannot run the model");
  return Read(AtollInterpreterGetOutputTensor(interpreter(), 0));
}

Json DeviceUseJson(const LoadedModel& model) {
  const AtollInterpreter* const interpreter = model.interpreter();
  Json cpu = Json::array();
  const int32_t nodes = AtollInterpreterGetNodeCount(interpreter);
  int32_t on_device = 0;
  for (int32_t i = 0; i < nodes; ++i) {
    AtollNodeInfo node = {};
    ThrowIfError(AtollInterpreterGetNodeInfo(interpreter, i, &node), Activity::kRunning, "");
    if (node.partition >= 0) {
      ++on_device;
    } else {
      cpu.push_back({{"index", i}, {"operator", node.op}, {"reason", node.reason}});
    }
  }
  double seconds = 0;
  for (int32_t i = 0; i < AtollInterpreterGetPartitionCount(interpreter); ++i) {
    AtollPartitionInfo partition = {};
    ThrowIfError(AtollInterpreterGetPartitionInfo(interpreter, i, &partition), Activity::kRunning,
                 "");
    seconds += partition.latency.total;
  }
  return {{"operators", nodes},
          {"on_device", on_device},
          {"modelled_ms", on_device == 0 ? Json() : Json(RoundedMs(seconds * 1e3))},
          {"on_cpu", std::move(cpu)}};
}

double CpuMs(const LoadedModel& model, const Sample& sample) {
  std::vector<double> times;
  (void)model.Run(sample);
  for (int i = 0; i < 5; ++i) {
    Stopwatch stopwatch;
    (void)model.Run(sample);
    times.push_back(stopwatch.LapMs());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

namespace {

Json TopJson(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t count = std::min<size_t>(values.size(), 5);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](size_t a, size_t b) { return values[a] > values[b]; });
  Json top = Json::array();
  for (size_t i = 0; i < count; ++i) {
    top.push_back({{"index", order[i]}, {"value", values[order[i]]}});
  }
  return top;
}

std::string Base64(const std::vector<uint8_t>& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(bytes.size() - i, 3);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < left ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) {
      text += k > left ? '=' : kDigits[group >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

}  // namespace

bool WorstSamples::Write(const Sample& sample) {
  for (const std::vector<float>& values : sample) {
    writable_ = writable_ && std::fwrite(values.data(), sizeof(float), values.size(),
                                         file_.get()) == values.size();
  }
  writable_ = writable_ && std::fflush(file_.get()) == 0;
  return writable_;
}

WorstSamples::WorstSamples(Calibration* calibration, const LoadedModel& before, bool with_pictures,
                           Json* worst)
    : file_(std::tmpfile()), writable_(file_ != nullptr) {
  std::map<int64_t, size_t> wanted;
  for (size_t i = 0; i < worst->size(); ++i) wanted[(*worst)[i]["sample"].get<int64_t>()] = i;
  if (wanted.empty()) return;
  calibration->Rewind();
  for (int64_t i = 0; i <= wanted.rbegin()->first && calibration->Next(&sample_); ++i) {
    const auto found = wanted.find(i);
    if (found == wanted.end()) continue;
    Json& entry = (*worst)[found->second];
    entry["name"] = calibration->NameOf(i);
    entry["before"] = TopJson(before.Run(sample_));
    kept_.push_back({found->second, Write(sample_) ? Sample() : sample_});
    if (!with_pictures) continue;
    const std::optional<atollrt::Image> picture = calibration->PictureOf(i);
    if (!picture) continue;
    constexpr int kSide = 160;
    const int longest = std::max({picture->width, picture->height, 1});
    const auto small = atollrt::Resize(*picture, std::max(1, picture->width * kSide / longest),
                                       std::max(1, picture->height * kSide / longest));
    if (!small.ok()) continue;
    if (const auto jpeg = atollrt::EncodeJpeg(*small, 85); jpeg.ok()) {
      entry["picture"] = "data:image/jpeg;base64," + Base64(*jpeg);
    }
  }
}

void WorstSamples::Describe(const LoadedModel& after, Json* worst) {
  if (file_ != nullptr) std::rewind(file_.get());
  for (Kept& kept : kept_) {
    if (kept.in_memory.empty()) {
      for (std::vector<float>& values : sample_) {
        if (std::fread(values.data(), sizeof(float), values.size(), file_.get()) != values.size()) {
          Fail(ExitCode::kFailure, "a temporary file cannot be read again; try again");
        }
      }
    }
    const Sample& sample = kept.in_memory.empty() ? sample_ : kept.in_memory;
    (*worst)[kept.entry]["after"] = TopJson(after.Run(sample));
  }
}

namespace {

std::string Db(const Json& value) {
  return value.is_number() ? fmt::format("{:.1f} dB", value.get<double>())
                           : std::string("no noise");
}

}  // namespace

std::string QuantizeReportText(const Json& report) {
  std::string text =
      fmt::format("model     {} -> {}\n", Printable(report["model"].get<std::string>()),
                  Printable(report["output"].get<std::string>()));
  text += fmt::format("size      {} -> {}\n", ByteSizeText(report["bytes_before"]),
                      ByteSizeText(report["bytes_after"]));
  text += fmt::format("samples   {}\n", Thousands(report["calibration"]["samples"]));
  std::map<std::string, int> types;
  for (const Json& layer : report["layers"]) ++types[layer["type"].get<std::string>()];
  text += "layers    ";
  bool first = true;
  for (const auto& [type, count] : types) {
    text += fmt::format("{}{} {}", first ? "" : ", ", count, type);
    first = false;
  }
  text += fmt::format("\nSQNR      logits {}, outputs {}\n", Db(report["logits_sqnr_db"]),
                      Db(report["output_sqnr_db"]));
  const Json& before = report["device"]["before"];
  const Json& after = report["device"]["after"];
  text += fmt::format(
      "before    0 of {} operators on the device; {}\n", before["operators"].get<int>(),
      before["cpu_ms"].is_number()
          ? fmt::format("{:.3f} ms on this CPU (measured)", before["cpu_ms"].get<double>())
          : Printable(before["reason"].get<std::string>()));
  text += fmt::format(
      "after     {} of {} operators on the device{}\n", after["on_device"].get<int>(),
      after["operators"].get<int>(),
      after["modelled_ms"].is_null()
          ? std::string()
          : fmt::format("; {:.3f} ms there (modelled)", after["modelled_ms"].get<double>()));
  for (const Json& node : after["on_cpu"]) {
    const auto reason = node["reason"].get<std::string>();
    text += fmt::format("  on the CPU: {:>4} {}{}\n", node["index"].get<int>(),
                        Printable(node["operator"].get<std::string>()),
                        reason.empty() ? "" : ": " + Printable(reason));
  }
  for (const Json& output : report["outputs"]) {
    for (const Json& part : output["parts"]) {
      text += fmt::format(
          "part      {} of output '{}', from {:g} to {:g}: {}\n",
          Printable(part["name"].get<std::string>()), Printable(output["name"].get<std::string>()),
          part["range"][0].get<double>(), part["range"][1].get<double>(), Db(part["sqnr_db"]));
    }
  }
  for (const Json& choice : report["choices"]) {
    text += fmt::format("chosen    {}\n", Printable(choice.get<std::string>()));
  }

  std::vector<const Json*> layers;
  for (const Json& layer : report["layers"]) {
    if (layer["sqnr_alone_db"].is_number()) layers.push_back(&layer);
  }
  std::stable_sort(layers.begin(), layers.end(), [](const Json* a, const Json* b) {
    return (*a)["sqnr_alone_db"].get<double>() < (*b)["sqnr_alone_db"].get<double>();
  });
  if (layers.size() > 5) layers.resize(5);
  if (!layers.empty()) text += "The layers that lose most, alone and with all before them:\n";
  for (const Json* const layer : layers) {
    text += fmt::format("  {:>4} {:<20} {:>9} {:>9}  {}\n", (*layer)["index"].get<int>(),
                        (*layer)["operator"].get<std::string>(), Db((*layer)["sqnr_alone_db"]),
                        Db((*layer)["sqnr_accumulated_db"]),
                        Printable((*layer)["name"].get<std::string>()));
  }
  return text;
}

}  // namespace atollcmd
