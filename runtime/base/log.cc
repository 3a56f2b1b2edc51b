// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/log.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace atollrt {
namespace {

struct Sink {
  std::mutex mutex;
  LogCallback callback = nullptr;
  void* user_data = nullptr;
};

// Never destroyed: threads may log while the process exits.
Sink& GlobalSink() {
  static Sink* const sink = new Sink;
  return *sink;
}

}  // namespace

void SetLogCallback(LogCallback callback, void* user_data) {
  Sink& sink = GlobalSink();
  const std::lock_guard lock(sink.mutex);
  sink.callback = callback;
  sink.user_data = user_data;
}

void Log(LogSeverity severity, const char* format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  Sink& sink = GlobalSink();
  const std::lock_guard lock(sink.mutex);
  if (sink.callback != nullptr) sink.callback(severity, line, sink.user_data);
}

}  // namespace atollrt
