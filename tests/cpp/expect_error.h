// Expects an aotbuild::Error of one status whose message holds every one of some pieces.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "error.h"

namespace aotbuild::test {

template <class Action>
void expect_error(aotbuild_status status, std::initializer_list<std::string> pieces,
                  Action action) {
  try {
    action();
    ADD_FAILURE() << "no error, expected status " << status;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.message();
    for (const std::string& piece : pieces) {
      EXPECT_NE(error.message().find(piece), std::string::npos)
          << "no \"" << piece << "\" in: " << error.message();
    }
  }
}

}  // namespace aotbuild::test
