#include "prepack/report/page.h"

#include <fmt/format.h>

#include "prepack/base/status.h"
#include "prepack/base/version.h"

namespace prepack {
namespace {

// The entity that stands for a character of XML's markup; empty: it stands for itself.
std::string_view XmlEntity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return "";
  }
}

// What GitHub's Markdown may take as markup inside a line. Only what can be: names of modules and
// numbers stay readable where nobody renders them.
bool NeedsBackslash(char c) {
  constexpr std::string_view kMarkup = "\\`*[]~$#";
  return kMarkup.find(c) != std::string_view::npos;
}

bool IsWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// There, an underscore does not mean emphasis.
bool IsInsideWord(std::string_view text, size_t index) {
  return index != 0 && index + 1 < text.size() && IsWord(text[index - 1]) &&
         IsWord(text[index + 1]);
}

}  // namespace

std::string EscapeXml(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kNoCharacter = "\xEF\xBF";  // U+FFFE and U+FFFF, with one more byte
  const std::string printable = Printable(text, max_bytes);
  std::string escaped;
  for (size_t i = 0; i < printable.size(); ++i) {
    const std::string_view entity = XmlEntity(printable[i]);
    if (!entity.empty()) {
      escaped += entity;
    } else if (printable.compare(i, 2, kNoCharacter) == 0 &&
               static_cast<unsigned char>(printable[i + 2]) >= 0xBE) {
      escaped += "\xEF\xBF\xBD";
      i += 2;
    } else {
      escaped += printable[i];
    }
  }
  return escaped;
}

std::string EscapeMarkdown(std::string_view text, size_t max_bytes) {
  const std::string printable = Printable(text, max_bytes);
  const std::string_view view = printable;
  std::string escaped;
  for (size_t i = 0; i < view.size(); ++i) {
    const char c = view[i];
    const std::string_view entity = XmlEntity(c);
    if (!entity.empty()) {
      escaped += entity;
    } else if (c == '|') {
      escaped += "&#124;";  // a backslash before it would depend on what stands around the cell
    } else if (view.substr(i).starts_with("://")) {
      escaped += "&#58;";  // otherwise it is a link
    } else if (c == '.' && view.substr(0, i).ends_with("www")) {
      escaped += "&#46;";
    } else {
      if (NeedsBackslash(c) || (c == '_' && !IsInsideWord(view, i)) ||
          (i == 0 && (c == '+' || c == '-'))) {
        escaped += '\\';
      }
      escaped += c;
    }
  }
  return escaped;
}

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --text: #1f2328; --faint: #59636e; --back: #fff; --line: #d1d9e0;
  --soft: #f6f8fa; --good: #116329; --bad: #b3261e; --unsure: #7d4e00; --heat: #c2410c;
  --k0: #2563eb; --k1: #d97706; --k2: #059669; --k3: #dc2626; --k4: #7c3aed; --k5: #0891b2;
  --k6: #be185d; --k7: #4d7c0f; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --faint: #9198a1; --back: #0d1117;
  --line: #3d444d; --soft: #151b23; --good: #3fb950; --bad: #ff7b72; --unsure: #d29922;
  --heat: #fb923c; --k0: #60a5fa; --k1: #fbbf24; --k2: #34d399; --k3: #f87171; --k4: #a78bfa;
  --k5: #22d3ee; --k6: #f472b6; --k7: #a3e635; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  margin: 2rem auto; max-width: 80rem; padding: 0 1.25rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .6rem; }
details { margin: 2.25rem 0 0; } summary { cursor: pointer; margin: 0 0 .6rem; }
summary h2 { display: inline; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem; margin: 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
li { overflow-wrap: anywhere; }
footer { color: var(--faint); margin-top: 2.5rem; border-top: 1px solid var(--line);
  padding-top: .6rem; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.unsure { color: var(--unsure); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left;
  vertical-align: top; }
thead th { background: var(--soft); vertical-align: bottom; }
.sortable td:first-child { font-family: ui-monospace, monospace; font-size: .9em;
  overflow-wrap: anywhere; min-width: 19rem; }
.number { text-align: right; white-space: nowrap; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; }
th button:hover, th button:focus-visible { text-decoration: underline; }
th[aria-sort=ascending] button::after { content: " \25B2"; font-size: .7em; }
th[aria-sort=descending] button::after { content: " \25BC"; font-size: .7em; }
.search { display: flex; gap: .75rem; align-items: baseline; margin: 0 0 .6rem; }
.search input { font: inherit; color: inherit; background: var(--back); padding: .25rem .5rem;
  border: 1px solid var(--line); border-radius: .3rem; width: min(24rem, 100%); }
.search span { color: var(--faint); }
figure { margin: 0 0 1.25rem; } figcaption { color: var(--faint); margin: 0 0 .35rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--faint); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .bar { stroke: var(--bad); stroke-width: 1.25; stroke-dasharray: 5 3; }
svg text.bar { fill: var(--bad); stroke: none; }
svg .k0 { fill: var(--k0); } svg .k1 { fill: var(--k1); } svg .k2 { fill: var(--k2); }
svg .k3 { fill: var(--k3); } svg .k4 { fill: var(--k4); } svg .k5 { fill: var(--k5); }
svg .k6 { fill: var(--k6); } svg .k7 { fill: var(--k7); }
svg .heat { fill: var(--heat); } svg .none { fill: var(--soft); }
svg .frame { fill: none; stroke: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; margin: .25rem 0 0;
  color: var(--faint); font-size: .85rem; }
.legend svg { display: inline-block; width: .7rem; height: .7rem; margin-right: .35rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr));
  gap: .5rem 2rem; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } .search { display: none; }
  .wide { overflow: visible; } figure, tr { break-inside: avoid; } h2 { break-after: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)";

// A page is XML as well, so that any tool can take it apart: hence CDATA. Cells that have no number
// come last, whichever way the column is sorted.
constexpr std::string_view kScript = R"(
//<![CDATA[
"use strict";
for (const box of document.querySelectorAll(".sortable")) {
  const table = box.querySelector("table"), body = table.tBodies[0];
  const rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const compareText = new Intl.Collator("en", {numeric: true}).compare;
  const key = (row, i) => row.cells[i].dataset.v;
  const compare = (a, b, i, number, way) => {
    const x = key(a, i), y = key(b, i);
    if (!number) return way * compareText(a.cells[i].textContent, b.cells[i].textContent);
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    const p = Number(x), q = Number(y);
    return p === q ? 0 : way * (p < q ? -1 : 1);
  };
  heads.forEach((head, i) => {
    const number = head.classList.contains("number");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.map((row, at) => [row, at])
          .sort((a, b) => compare(a[0], b[0], i, number, down ? -1 : 1) || a[1] - b[1])
          .forEach(([row]) => body.append(row));
    });
  });
  const search = box.querySelector(".search"), input = search.querySelector("input");
  const count = search.querySelector("span");
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every(word => texts[i].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = `${shown} of ${rows.length}`;
  };
  input.addEventListener("input", show);
  search.hidden = false;
  show();
}
//]]>
)";

}  // namespace

std::string HtmlPage(std::string_view title, std::string_view html) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}"
      "<footer>prepack {}</footer>\n<script>{}</script>\n</body>\n</html>\n",
      EscapeXml(title), kStyle, html, kVersion, kScript);
}

std::string HtmlSection(std::string_view heading, std::string_view html) {
  if (html.empty()) return "";
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", EscapeXml(heading), html);
}

std::string HtmlFoldedSection(std::string_view heading, std::string_view html) {
  if (html.empty()) return "";
  return fmt::format("<details>\n<summary><h2>{}</h2></summary>\n{}</details>\n",
                     EscapeXml(heading), html);
}

std::string HtmlFacts(const std::vector<std::pair<std::string_view, std::string>>& facts) {
  std::string html;
  for (const auto& [name, value] : facts) {
    if (value.empty()) continue;
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", EscapeXml(name), EscapeXml(value));
  }
  return html.empty() ? html : fmt::format("<dl>\n{}</dl>\n", html);
}

std::string HtmlList(const std::vector<std::string>& sentences) {
  std::string html;
  for (const std::string& sentence : sentences) {
    html += fmt::format("<li>{}</li>\n", EscapeXml(sentence));
  }
  return html.empty() ? html : fmt::format("<ul>\n{}</ul>\n", html);
}

std::string_view ToneClass(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "plain";
    case Tone::kGood:
      return "good";
    case Tone::kBad:
      return "bad";
    case Tone::kUnsure:
      return "unsure";
  }
  return "plain";
}

std::string HtmlToned(Tone tone, std::string_view text) {
  return fmt::format("<span class=\"{}\">{}</span>", ToneClass(tone), EscapeXml(text));
}

}  // namespace prepack
