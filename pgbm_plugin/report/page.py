"""HTML elements and style of the report. All text is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
<header>
<h1>$title</h1>
$header
</header>
<main>
$main
</main>
<footer><p>$footer</p></footer>
</body>
</html>
""")

_STYLE = """\
:root { color-scheme: light dark; --ground: #fff; --text: #1c2024; --soft: #5a6472; --line: #d5dae0; --box: #f4f6f8;
  --red: #b3261e; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --text: #e4e7ea; --soft: #a2abb6; --line: #3a424b;
  --box: #1f2429; --red: #ff8a80; --c0: #56b4e9; --c1: #ff8a3d; --c2: #2fc79b; --c3: #e3a0c8; --c4: #f0b840;
  --c5: #8fd0f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; background: var(--ground); color: var(--text);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .8rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .6rem; }
p { max-width: 44rem; margin: .6rem 0; }
aside { background: var(--box); border-left: .25rem solid var(--c0); padding: .4rem 1rem; margin: 1rem 0;
  max-width: 46rem; }
aside.warning { border-color: var(--c1); }
aside.danger { border-color: var(--red); color: var(--red); font-weight: 600; }
.verdict { font-size: 1.25rem; font-weight: 600; margin: .2rem 0; }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; } li { max-width: 44rem; margin: .35rem 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem; }
figure { margin: 1rem 0; max-width: 31rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: system-ui, sans-serif !important; }
figcaption, .note, footer { color: var(--soft); font-size: .92rem; }
figcaption strong { color: var(--text); font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } thead th { vertical-align: bottom; font-size: .9rem; }
th[scope=row], table.facts td, thead th:first-child { text-align: left; }
th[scope=row] { overflow-wrap: anywhere; min-width: 5.5rem; }
td { white-space: nowrap; } table.facts td, td.bar { white-space: normal; }
td.bar { width: min(20rem, 35vw); text-align: left; }
td.bar span { display: block; background: var(--c0); height: .8em; margin-top: .35em; min-width: 1px; }
@media print { :root { --ground: #fff; --text: #000; --soft: #444; --line: #bbb; --box: #f4f6f8; --red: #b3261e;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9; }
  body { max-width: none; padding: 0; font-size: 10pt; } .figures { grid-template-columns: 1fr 1fr; }
  figure, tr, aside { break-inside: avoid; }
  h2 { break-after: avoid; } td.bar span { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }"""


def page(title: str, header: str, sections: Sequence[str], footer: str) -> str:
    """Return the whole document. `header` and `sections` are HTML, `title` and `footer` plain text."""
    main = "\n".join(sections)
    return _PAGE.substitute(title=escape(title), style=_STYLE, header=header, main=main, footer=escape(footer))


def section(name: str, heading: str, *content: str, level: int = 2) -> str:
    """Return a section with the id `name`. `content` is HTML."""
    parts = "\n".join(part for part in content if part)
    top = f'<h{level} id="{name}">{_text(heading)}</h{level}>'
    return f'<section aria-labelledby="{name}">\n{top}\n{parts}\n</section>'


def bullets(items: Sequence[str | tuple[str, str]]) -> str:
    """Return a list. Of an item that is a pair, the first text is in bold."""
    pairs = [("", item) if isinstance(item, str) else item for item in items]
    lines = (f"<li>{f'<strong>{_text(bold)}</strong> ' if bold else ''}{_text(text)}</li>" for bold, text in pairs)
    return f"<ul>{''.join(lines)}</ul>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{_text(text)}</p>" if text else ""


def box(sentences: Sequence[str], kind: str = "") -> str:
    return f"<aside{_class(kind)}>{''.join(map(paragraph, sentences))}</aside>" if sentences else ""


def captioned(svg: str, finding: str, reading: str) -> str:
    """Return a figure whose caption says what it shows, in bold, and then how to read it."""
    return f"<figure>\n{svg}\n<figcaption><strong>{_text(finding)}</strong> {_text(reading)}</figcaption>\n</figure>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Return a table in which the first cell of each row is a header."""
    body = "\n".join(f"<tr>{_row_header(row[0])}{''.join(map(_cell, row[1:]))}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>\n'
        f"<thead><tr>{_column_headers(head)}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def bars(head: Sequence[str], shares: Sequence[tuple[str, float]], shown: Sequence[str]) -> str:
    """Return a table of names and shares, with a bar for each share."""
    longest = max(share for _, share in shares)
    body = "\n".join(
        f"<tr>{_row_header(name)}{_cell(text)}"
        f'<td class="bar"><span style="width:{100.0 * share / longest:.1f}%"></span></td></tr>'
        for (name, share), text in zip(shares, shown, strict=True)
    )
    top = f'<thead><tr>{_column_headers(head)}<td class="bar"></td></tr></thead>'
    return f"<table>\n{top}\n<tbody>\n{body}\n</tbody></table>"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    body = "\n".join(f"<tr>{_row_header(name)}{_cell(value)}</tr>" for name, value in pairs)
    return f'<table class="facts">\n<tbody>\n{body}\n</tbody></table>'


def _text(text: str) -> str:
    """Escape the text, and keep "%" and "±" on the same line as their number."""
    return escape(text).replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;")


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _column_headers(head: Sequence[str]) -> str:
    return "".join(f'<th scope="col">{_text(cell)}</th>' for cell in head)


def _row_header(text: str) -> str:
    return f'<th scope="row">{_text(text)}</th>'


def _cell(text: str) -> str:
    return f"<td>{_text(text)}</td>"
