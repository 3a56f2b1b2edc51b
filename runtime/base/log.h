// SPDX-License-Identifier: Apache-2.0
//
// The one way in which the library speaks outside of return values: a callback that the host
// program may install. Without one, nothing is ever printed. Thread-safe.
#pragma once

namespace atollrt {

enum class LogSeverity { kInfo = 0, kWarning = 1, kError = 2 };

// `message` is one line without a newline and lives only during the call, which may come from any
// thread that is inside a call of this library.
using LogCallback = void (*)(LogSeverity severity, const char* message, void* user_data);

// Replaces the callback for the whole process; nullptr silences. Returns when no call of the old
// callback is running any more.
void SetLogCallback(LogCallback callback, void* user_data);

[[gnu::format(printf, 2, 3)]] void Log(LogSeverity severity, const char* format, ...);

}  // namespace atollrt
