#include "library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "runtime_fixture.h"

namespace aotbuild {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the words of these tests
namespace fs = std::filesystem;

class LibraryTest : public RuntimeTest {
 protected:
  std::string path(const std::string& name) const { return (directory.path() / name).string(); }
  // The pack that would serve a call.
  static std::string pack_for(aotbuild_library& library, const SimpleCall& simple) {
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    query(library, simple.request(), &info);
    return info.pack;
  }
};

TEST_F(LibraryTest, NoPackTellsWhatWasTriedAndWhatToDo) {
  const auto library = open({"first", "second"});
  expect_error(
      AOTBUILD_ERROR_NO_PACK,
      {"family test for sm_90", path("first/sm_90/test.aotpack") + " (set by API)",
       path("second/sm_90/test.aotpack"), "`aotbuild compile --arch sm_90`", "AOTBUILD_IMAGE_PATH"},
      [&] { launch(*library, SimpleCall().request()); });
}

TEST_F(LibraryTest, AnEmptySearchPathIsSaid) {
  const auto library = open({});
  expect_error(AOTBUILD_ERROR_NO_PACK, {"search path is empty"},
               [&] { launch(*library, SimpleCall().request()); });
}

TEST_F(LibraryTest, NoPackIsNotRemembered) {
  const auto library = open();
  expect_error(AOTBUILD_ERROR_NO_PACK, {}, [&] { launch(*library, SimpleCall().request()); });
  install(simple_pack());
  launch(*library, SimpleCall().request());
  EXPECT_EQ(cuda.launches().size(), 1U);
}

TEST_F(LibraryTest, FamiliesThatCouldNotBeFileNamesAreRefused) {
  install(simple_pack());
  const auto library = open();
  const SimpleCall simple;
  for (const char* family : {"", "../packs/sm_90/test", "Test", "te st", "te\xC3\xA4st"}) {
    LaunchRequest request = simple.request();
    request.family = family;
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"family"}, [&] { launch(*library, request); });
  }
}

TEST_F(LibraryTest, ABrokenFirstCandidateIsNotPassedOver) {
  const std::string broken = directory.write("first/sm_90/test.aotpack", {'j', 'u', 'n', 'k'});
  install(simple_pack(), "second");
  const auto library = open({"first", "second"});
  for (int i = 0; i < 2; ++i) {
    expect_error(AOTBUILD_ERROR_PACK_CORRUPT, {broken},
                 [&] { launch(*library, SimpleCall().request()); });
  }
  EXPECT_TRUE(cuda.launches().empty());
  install(simple_pack(), "first");  // repaired: errors are not remembered
  EXPECT_EQ(pack_for(*library, SimpleCall()), broken);
}

TEST_F(LibraryTest, ACandidateThatCannotBeReadIsNotPassedOver) {
  fs::create_directories(path("first/sm_90/test.aotpack"));  // a directory is no pack
  install(simple_pack(), "second");
  const auto library = open({"first", "second"});
  expect_error(AOTBUILD_ERROR_IO, {path("first/sm_90/test.aotpack")},
               [&] { launch(*library, SimpleCall().request()); });
}

TEST_F(LibraryTest, APackMustBeWhatItsPlaceSays) {
  PackBuilder other_arch = simple_pack();
  other_arch.arch = "sm_80";
  directory.write("packs/sm_90/test.aotpack", other_arch.build());
  expect_error(AOTBUILD_ERROR_PACK_ARCH, {"holds sm_80/test", "sm_90/test", "Move it"},
               [&] { launch(*open(), SimpleCall().request()); });
  PackBuilder other_family = simple_pack();
  other_family.family = "gemm";
  directory.write("packs/sm_90/test.aotpack", other_family.build());
  expect_error(AOTBUILD_ERROR_PACK_ARCH, {"holds sm_90/gemm", "sm_90/test"},
               [&] { launch(*open(), SimpleCall().request()); });
}

TEST_F(LibraryTest, NoImageTellsWhyOfEachPack) {
  PackBuilder without = simple_pack();
  without.operators[0].name = without.text("other");
  install(without, "first");
  install(simple_pack(), "second");
  const auto library = open({"first", "second"});
  SimpleCall simple;
  simple.x->dtype.bits = simple.out->dtype.bits = 32;
  expect_error(
      AOTBUILD_ERROR_NO_IMAGE,
      {"sm_90", "test.scale", path("first/sm_90/test.aotpack") + ": has no operator 'scale'",
       path("second/sm_90/test.aotpack") + ": ", "dtype", "--profile standard"},
      [&] { launch(*library, simple.request()); });
}

TEST_F(LibraryTest, TheFirstPackThatHoldsTheImageWins) {
  PackBuilder only_float32 = simple_pack();
  only_float32.values[0] = kFloat32;
  const std::string first = install(only_float32, "first");
  const std::string second = install(simple_pack(), "second");
  install(simple_pack(), "third");
  const auto library = open({"first", "second", "third"});
  EXPECT_EQ(pack_for(*library, SimpleCall()), second);
  SimpleCall float32;
  float32.x->dtype.bits = float32.out->dtype.bits = 32;
  EXPECT_EQ(pack_for(*library, float32), first);
}

TEST_F(LibraryTest, APackOfTheOtherVendorIsRefused) {
  PackBuilder pack = simple_pack(format::Vendor::kHip);
  install(pack);
  hip.device(0).arch = "gfx942";
  cuda.device(0).capability = 90;
  launch(*open(), SimpleCall(kDeviceRocm).request());
  // Each device finds only packs of its own arch.
  expect_error(AOTBUILD_ERROR_NO_PACK, {"sm_90"}, [&] { launch(*open(), SimpleCall().request()); });
}

TEST_F(LibraryTest, DevicesOfDifferentArchesUseTheirOwnPacks) {
  const std::string hopper = install(simple_pack());
  PackBuilder ampere = simple_pack();
  ampere.arch = "sm_80";
  ampere.codes[0] = fake_code(ampere.vendor, 80, "code");
  const std::string sm_80 = install(ampere);
  cuda.device(1).capability = 80;
  const auto library = open();
  EXPECT_EQ(pack_for(*library, SimpleCall(kDeviceCuda, 0)), hopper);
  EXPECT_EQ(pack_for(*library, SimpleCall(kDeviceCuda, 1)), sm_80);
}

TEST_F(LibraryTest, LibrariesAreIndependent) {
  const std::string first = install(simple_pack(), "first");
  const std::string second = install(simple_pack(), "second");
  auto one = open({"first"});
  auto two = open({"second"});
  launch(*one, SimpleCall().request());
  launch(*two, SimpleCall().request());
  EXPECT_EQ(pack_for(*one, SimpleCall()), first);
  EXPECT_EQ(pack_for(*two, SimpleCall()), second);
  EXPECT_EQ(cuda.modules(), 2);
  one.reset();
  EXPECT_EQ(cuda.modules(), 1);
  launch(*two, SimpleCall().request());
  two.reset();
  EXPECT_EQ(cuda.modules(), 0);
}

// Both images of a pack on both devices of both kinds, first used by many threads at once.
TEST_F(LibraryTest, FirstUseByManyThreadsLoadsOnce) {
  for (const auto vendor : {format::Vendor::kCuda, format::Vendor::kHip}) {
    PackBuilder pack = simple_pack(vendor);
    pack.operators.clear();
    pack.add_row({kFloat32}, 1);
    pack.add_operator("scale");
    const std::vector<format::Argument> arguments = pack.arguments;
    pack.add_image("other", pack.codes[0]);
    pack.codes[1].push_back('2');
    for (const format::Argument& argument : arguments) pack.arguments.push_back(argument);
    pack.images[1].argument_count = static_cast<uint32_t>(arguments.size());
    pack.add_factor(0, format::SourceKind::kSize, "x", 0, 64);
    install(pack);
  }
  const auto library = open();
  constexpr int kThreads = 8;
  constexpr int kRounds = 20;
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      for (int i = 0; i < kRounds; ++i) {
        const int32_t type = (t + i) % 2 == 0 ? kDeviceCuda : kDeviceRocm;
        SimpleCall simple(type, (t / 2 + i) % 2);
        simple.x->dtype.bits = simple.out->dtype.bits = (t / 4 + i) % 2 == 0 ? 16 : 32;
        launch(*library, simple.request());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cuda.launches().size() + hip.launches().size(), size_t{kThreads} * kRounds);
  EXPECT_EQ(cuda.calls("cuLibraryLoadData"), 4);
  EXPECT_EQ(hip.calls("hipModuleLoadData"), 4);
  EXPECT_EQ(cuda.modules(), 4);
  EXPECT_EQ(hip.modules(), 4);
}

TEST_F(LibraryTest, FailuresByManyThreadsHeal) {
  install(simple_pack());
  const auto library = open();
  cuda.fail("cuLibraryLoadData", 700);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      try {
        launch(*library, SimpleCall().request());
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), AOTBUILD_ERROR_DRIVER) << error.message();
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(cuda.launches().size(), 7U);
  EXPECT_EQ(cuda.modules(), 1);
}

TEST_F(LibraryTest, DescribeListsTheSearchPath) {
  install(simple_pack());
  const std::string text = open({"packs", "nowhere"})->describe(nullptr);
  EXPECT_NE(text.find(path("packs") + " (set by API)\n"), std::string::npos) << text;
  EXPECT_NE(text.find(path("nowhere") + " (set by API): does not exist\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find(".aotpack"), std::string::npos) << text;
}

TEST_F(LibraryTest, DescribeListsPacksAndWhyTheyCannotBeUsed) {
  const std::string good = install(simple_pack());
  const std::string junk = directory.write("packs/sm_90/junk.aotpack", {'j'});
  directory.write("packs/sm_90/notes.txt", {'n'});
  PackBuilder misplaced = simple_pack();
  misplaced.arch = "sm_80";
  const std::string wrong = directory.write("packs/sm_90/wrong.aotpack", misplaced.build());
  const auto library = open();
  const std::string text = library->describe("sm_90");
  EXPECT_NE(text.find(good + ": 1 images, made by aotbuild test\n"), std::string::npos) << text;
  EXPECT_NE(text.find(junk + ": cannot be used: "), std::string::npos) << text;
  EXPECT_NE(text.find(wrong + ": cannot be used: "), std::string::npos) << text;
  EXPECT_EQ(text.find("notes"), std::string::npos) << text;
  const std::string none = library->describe("gfx950");
  EXPECT_NE(none.find("none. Make one with `aotbuild compile --arch gfx950`"), std::string::npos)
      << none;
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"arch", "../sm_90"},
               [&] { library->describe("../sm_90"); });
}

}  // namespace
}  // namespace aotbuild
