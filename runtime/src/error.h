// Failures inside the runtime are exceptions; api.cc turns them into a status and a message.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "aotbuild/aotbuild.h"

namespace aotbuild {

class Error : public std::exception {
 public:
  Error(aotbuild_status status, std::string message)
      : status_(status), message_(std::move(message)) {}
  aotbuild_status status() const { return status_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  aotbuild_status status_;
  std::string message_;
};

}  // namespace aotbuild
