#include "dispatch.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"
#include "text.h"

namespace aotbuild {
namespace {

using format::Mode;
using format::SourceKind;

constexpr uint32_t kMaxColumns = 32;  // as the pack's validation has it
constexpr size_t kMaxListed = 8;      // values or images that a message lists

// An operator's dispatch table with the call's value for each column. No allocation here: this
// is on the path of every launch.
class DispatchTable {
 public:
  DispatchTable(const Pack& pack, const format::Operator& op, const Call& call)
      : pack_(pack), columns_(pack.columns(op)), rows_(pack.rows(op)), table_(pack.values(op)) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      const format::Column& column = columns_[c];
      if (column.mode != Mode::kSlack) {
        asked_[c] =
            call.integer(column.source_kind, pack.string(column.source_name), column.source_dim);
      }
    }
  }

  // Rows whose leading EQUAL columns have the call's values: [first, second).
  std::pair<size_t, size_t> candidates() const;
  bool serves(size_t row, size_t column) const;
  bool serves(size_t row) const {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!serves(row, c)) {
        return false;
      }
    }
    return true;
  }
  // "dtype=float16 head_dim=72".
  std::string asked() const;
  // Why no row serves the call, or "" when some do.
  std::string missing() const;

 private:
  int64_t value(size_t row, size_t column) const { return table_[row * columns_.size() + column]; }
  std::string text(size_t column, int64_t value) const {
    return columns_[column].source_kind == SourceKind::kDtype ? dtype_text(value)
                                                              : std::to_string(value);
  }
  std::string lacking(size_t column, const std::vector<size_t>& rows) const;

  const Pack& pack_;
  Span<format::Column> columns_;
  Span<format::Row> rows_;
  Span<int64_t> table_;
  std::array<int64_t, kMaxColumns> asked_ = {};
};

std::pair<size_t, size_t> DispatchTable::candidates() const {
  size_t leading = 0;
  while (leading < columns_.size() && columns_[leading].mode == Mode::kEqual) {
    ++leading;
  }
  const int64_t* asked = asked_.data();
  // First row whose leading values are not below the call's, or not at most them.
  const auto bound = [&](bool upper) {
    size_t low = 0;
    size_t high = rows_.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      const int64_t* row = table_.begin() + middle * columns_.size();
      const bool before =
          upper ? !std::lexicographical_compare(asked, asked + leading, row, row + leading)
                : std::lexicographical_compare(row, row + leading, asked, asked + leading);
      if (before) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  return {bound(false), bound(true)};
}

bool DispatchTable::serves(size_t row, size_t column) const {
  const int64_t have = value(row, column);
  switch (columns_[column].mode) {
    case Mode::kEqual:
      return have == asked_[column];
    case Mode::kAtLeast:
      return have >= asked_[column];
    case Mode::kAtMost:
      return have <= asked_[column];
    case Mode::kSlack:
      break;
  }
  const size_t reference = columns_[column].reference;
  return have == 1 || value(row, reference) == asked_[reference];
}

std::string DispatchTable::asked() const {
  std::string all;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].mode != Mode::kSlack) {
      all += (all.empty() ? "" : " ") + std::string(pack_.string(columns_[c].name)) + "=" +
             text(c, asked_[c]);
    }
  }
  return all;
}

// "no row has head_dim of at least 300; there are 64, 128".
std::string DispatchTable::lacking(size_t column, const std::vector<size_t>& rows) const {
  if (columns_[column].mode == Mode::kSlack) {
    const std::string reference(pack_.string(columns_[columns_[column].reference].name));
    return "no row has " + reference + " exactly, and none has " +
           std::string(pack_.string(columns_[column].name)) + "=1";
  }
  static constexpr std::string_view kWords[] = {" equal to ", " of at least ", " of at most "};
  std::vector<int64_t> there;
  there.reserve(rows.size());
  for (const size_t row : rows) {
    there.push_back(value(row, column));
  }
  std::sort(there.begin(), there.end());
  there.erase(std::unique(there.begin(), there.end()), there.end());
  std::string list;
  for (size_t i = 0; i < std::min(there.size(), kMaxListed); ++i) {
    list += (i == 0 ? "" : ", ") + text(column, there[i]);
  }
  return "no row has " + std::string(pack_.string(columns_[column].name)) +
         std::string(kWords[static_cast<size_t>(columns_[column].mode)]) +
         text(column, asked_[column]) + "; there are " + list +
         (there.size() > kMaxListed ? ", ..." : "");
}

std::string DispatchTable::missing() const {
  if (rows_.empty()) {
    return "the pack has no row for this operator";
  }
  std::vector<size_t> alive(rows_.size());
  for (size_t row = 0; row < alive.size(); ++row) {
    alive[row] = row;
  }
  // Column by column: the one that ends the search is the one to name.
  for (size_t c = 0; c < columns_.size(); ++c) {
    std::vector<size_t> left;
    std::copy_if(alive.begin(), alive.end(), std::back_inserter(left),
                 [&](size_t row) { return serves(row, c); });
    if (left.empty()) {
      return lacking(c, alive);
    }
    alive = std::move(left);
  }
  return "";
}

// On failure only: every row again, now with reasons.
std::string explain(const Pack& pack, const format::Operator& op, const Call& call,
                    const DispatchTable& table) {
  std::string text = "operator " + quoted(pack.string(op.name)) + " with " + table.asked() + ": ";
  const std::string missing = table.missing();
  if (!missing.empty()) {
    return text + missing;
  }
  text += "images serve it, but not with these arguments";
  size_t listed = 0;
  const auto rows = pack.rows(op);
  for (size_t row = 0; row < rows.size() && listed < kMaxListed; ++row) {
    if (table.serves(row)) {
      const format::Image& image = pack.images()[rows[row].image];
      text += "; image " + quoted(pack.string(image.name)) + ": ";
      promises_hold(pack, image, call, &text);
      ++listed;
    }
  }
  return text;
}

}  // namespace

const format::Image* dispatch(const Pack& pack, const format::Operator& op, const Call& call,
                              std::string* why) {
  const DispatchTable table(pack, op, call);
  const auto rows = pack.rows(op);
  const auto [first, last] = table.candidates();
  for (size_t row = first; row < last; ++row) {
    if (!table.serves(row)) {
      continue;
    }
    if (rows[row].image == format::kNone) {
      throw Error(AOTBUILD_ERROR_UNSUPPORTED,
                  pack.path() + ": operator " + quoted(pack.string(op.name)) + " with " +
                      table.asked() + " is a known failure on " + std::string(pack.arch()) + ": " +
                      std::string(pack.string(rows[row].reason)));
    }
    const format::Image& image = pack.images()[rows[row].image];
    if (promises_hold(pack, image, call, nullptr)) {
      return &image;
    }
  }
  if (why != nullptr) {
    *why += explain(pack, op, call, table);
  }
  return nullptr;
}

}  // namespace aotbuild
