// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/exit_code.h"

#include <fmt/format.h>

#include <cerrno>

namespace atollcmd {

ExitCode ExitCodeOf(AtollStatus status, Activity activity) {
  if (status == ATOLL_OK) return ExitCode::kOk;
  if (status == ATOLL_DEVICE_LOST) return ExitCode::kDeviceLost;
  switch (activity) {
    case Activity::kOpeningDevice:
      if (status == ATOLL_INVALID_ARGUMENT) return ExitCode::kUsage;  // not a device name at all
      if (status == ATOLL_NOT_FOUND || status == ATOLL_PERMISSION_DENIED ||
          status == ATOLL_DEVICE_BUSY || status == ATOLL_UNSUPPORTED) {
        return ExitCode::kNoDevice;
      }
      break;
    case Activity::kLoadingModel:
      if (status == ATOLL_INVALID_ARGUMENT) return ExitCode::kUsage;  // no such input, or shape
      // A model whose shapes ask for more memory than there is, is as useless as a corrupt one.
      if (status == ATOLL_CORRUPT_MODEL || status == ATOLL_UNSUPPORTED ||
          status == ATOLL_RESOURCE_EXHAUSTED) {
        return ExitCode::kBadModel;
      }
      return ExitCode::kFailure;  // the file itself: not found, not permitted
    case Activity::kPreparing:
      if (status == ATOLL_CORRUPT_MODEL || status == ATOLL_UNSUPPORTED ||
          status == ATOLL_INVALID_ARGUMENT || status == ATOLL_RESOURCE_EXHAUSTED) {
        return ExitCode::kBadModel;
      }
      break;
    case Activity::kRunning:
      // For example an index, read from data, beyond the tensor that it points into.
      if (status == ATOLL_CORRUPT_MODEL || status == ATOLL_UNSUPPORTED) return ExitCode::kBadModel;
      break;
  }
  return status == ATOLL_TIMEOUT ? ExitCode::kDeviceLost : ExitCode::kFailure;
}

namespace {

const char* NextStep(AtollStatus status, ExitCode code, Activity activity) {
  switch (code) {
    case ExitCode::kNoDevice:
      if (status == ATOLL_PERMISSION_DENIED || status == ATOLL_DEVICE_BUSY)
        return "'atoll doctor' looks closer";
      return "'atoll devices' lists what is there";
    case ExitCode::kUsage:
      return "see --help, and 'atoll devices' for what is there";
    case ExitCode::kBadModel:
      if (status == ATOLL_CORRUPT_MODEL) return "get an undamaged copy of the file";
      if (status == ATOLL_RESOURCE_EXHAUSTED) {
        return activity == Activity::kLoadingModel
                   ? "take a smaller model, or give inputs smaller shapes (--input-shape)"
                   : "take a smaller model";
      }
      return activity == Activity::kLoadingModel
                 ? "Atoll runs float32, int8 and uint8 models with static shapes, which "
                   "--input-shape can give to inputs"
                 : "Atoll runs float32, int8 and uint8 models with static shapes";
    case ExitCode::kDeviceLost:
      return "plug the device in again or use --device emu";
    default:
      if (status == ATOLL_PERMISSION_DENIED) return AdviseReading(EACCES);
      if (activity == Activity::kLoadingModel) return AdviseReading(0);
      // For example an index among the inputs, beyond the tensor that it points into.
      return status == ATOLL_INVALID_ARGUMENT ? "check the inputs" : "try --device cpu";
  }
}

// What kind of conversion made a model that is whole, but not of a kind that runs here; "" if none.
const char* AdviseConversion(const std::string& message) {
  const auto has = [&](const char* words) { return message.find(words) != message.npos; };
  // Weights, and what they are multiplied by.
  if (has("float32") && (has("type int8") || has("is int8"))) {
    return "the model is dynamic-range quantized: 'atoll quantize' makes a fully quantized one of "
           "it";
  }
  if (has("type float16")) {
    return "float16 weights run where a DEQUANTIZE makes float32 of them, as TensorFlow's "
           "converter "
           "writes them; convert the model again, or let 'atoll quantize' make an int8 model of "
           "the float one";
  }
  return "";
}

}  // namespace

const char* AdviseReading(int error) {
  return error == EACCES || error == EPERM
             ? "let this user read it ('ls -l' shows who may), or give another file"
             : "check the path";
}

void ThrowIfError(AtollStatus status, Activity activity, const std::string& context,
                  const std::string& next_step) {
  if (status == ATOLL_OK) return;
  std::string message = AtollLastError();
  if (message.empty()) message = AtollStatusName(status);
  if (!context.empty()) message = fmt::format("{}: {}", context, message);
  const ExitCode code = ExitCodeOf(status, activity);
  if (const char* const advice = AdviseConversion(message);
      code == ExitCode::kBadModel && *advice) {
    throw CommandError(code, fmt::format("{}; {}", message, advice));
  }
  // Some sentences about what cannot be end in what to do.
  if (next_step.empty() && status == ATOLL_UNSUPPORTED && message.find("; ") != message.npos) {
    throw CommandError(code, message);
  }
  throw CommandError(code,
                     fmt::format("{}; {}", message,
                                 next_step.empty() ? NextStep(status, code, activity) : next_step));
}

}  // namespace atollcmd
