"""Files come back in their form, translated; what is no such file is refused."""

from __future__ import annotations

import asyncio
import html
import io
import re
import zipfile
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.serving.downloads import MOST_BYTES, MOST_FILES, Downloads
from longstride.serving.errors import ServingError
from longstride.serving.html import runs
from longstride.serving.word import _paragraphs, _parsed, _written
from longstride.translator import Translator
from tests.serving.conftest import Served

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
LINE = "Good morning!"


def word(*paragraphs: list[str], head: str = "") -> bytes:
    body = "".join(
        f"<w:p>{''.join(f'<w:r><w:b/><w:t>{text}</w:t></w:r>' for text in texts)}</w:p>" for texts in paragraphs
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(
            "word/document.xml", f'{head}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
        )
    return packed.getvalue()


def sent(served: Served, name: str, content: bytes, **more: Any) -> tuple[httpx.Response, httpx.Response | None]:
    async def ask() -> tuple[httpx.Response, httpx.Response | None]:
        async with served.client as client:
            data = {"source": "en", "target": "de", **more}
            found = await client.post("/translate_file", data=data, files={"file": (name, content)})
            if found.status_code != 200:
                return found, None
            return found, await client.get(found.json()["translatedFileUrl"])

    return asyncio.run(ask())


def test_text_and_subtitles(served: Served, translator: Translator) -> None:
    first, yes = translator.translate(LINE), translator.translate("Yes.")
    _, found = sent(served, "a.txt", f"{LINE}\n\n Yes.\n".encode())
    assert found is not None
    assert found.text == f"{first}\n\n {yes}\n"
    assert "attachment" in found.headers["content-disposition"]
    subtitles = f"1\n00:00:01,000 --> 00:00:02,000\n{LINE}\n\n2\n00:00:03,000 --> 00:00:04,000\nYes.\n"
    _, found = sent(served, "../../a b.SRT", subtitles.encode())
    assert found is not None
    assert found.text == subtitles.replace(LINE, first).replace("Yes.", yes)


def test_signs_are_read_as_they_were_meant(served: Served, translator: Translator) -> None:
    """By whoever goes by a byte order mark, or by what a page says of its encoding."""
    text = "The European Commission"
    done = str(translator.translate(text))
    assert not done.isascii()
    for name in ("a.txt", "a.srt", "a.html"):
        _, found = sent(served, name, f"\ufeff{text}".encode())
        assert found is not None
        assert found.content.decode() == f"\ufeff{done}"
    page = f'<meta charset="iso-8859-1"><p>{text}</p>'
    _, found = sent(served, "a.html", page.encode())
    assert found is not None
    assert html.unescape(found.content.decode("iso-8859-1")) == page.replace(text, done)
    _, found = sent(served, "a.html", f"<p>{text}</p><!-- é -->".encode())
    assert found is not None
    assert found.content.decode() == f"<p>{done}</p><!-- é -->"


def test_subtitles_keep_their_tags(served: Served, translator: Translator) -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\n<i>The European\nUnion</i> is <b>good</b>.\n"
    _, found = sent(served, "a.srt", text.encode())
    assert found is not None
    tags = re.compile(r"</?\w>")
    assert tags.findall(found.text) == ["<i>", "</i>", "<b>", "</b>"]
    done = translator.translate("The European Union is good.")
    assert tags.sub("", found.text) == f"1\n00:00:01,000 --> 00:00:02,000\n{done}\n"
    for odd in ("A &amp; B < C", "AT&T", "<3 you"):
        _, found = sent(served, "a.srt", f"1\n00:00:01,000 --> 00:00:02,000\n{odd}\n".encode())
        assert found is not None
        assert found.text.splitlines()[2] == translator.translate(odd)


def test_a_file_in_the_targets_language_comes_back_as_it_is(served: Served) -> None:
    german = b"Guten Morgen, meine Damen und Herren, das ist die Sitzung des Parlaments.\n"
    for source in ("de", "auto"):
        _, found = sent(served, "a.txt", german, source=source)
        assert found is not None
        assert found.content == german
    assert sent(served, "a.txt", german, source="xx", target="xx")[0].status_code == 400


def test_everybody_in_a_subtitle_keeps_a_line(served: Served, translator: Translator) -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\n- Good\n  morning!\r\n\u2013Yes.\n\n"
    text += "2\n00:00:03,000 --> 00:00:04,000\nA well-\nknown man.\n"
    _, found = sent(served, "a.srt", text.encode())
    assert found is not None
    first, second = translator.translate("Good morning!"), translator.translate("Yes.")
    expected = text.replace("Good\n  morning!", first).replace("Yes.", second)
    assert found.content.decode() == expected.replace("A well-\nknown man.", translator.translate("A well- known man."))


def test_word_files_keep_their_paragraphs(served: Served, translator: Translator) -> None:
    _, found = sent(served, "a.docx", word(["Good ", "morning!"], [], ["Yes."]))
    assert found is not None
    with zipfile.ZipFile(io.BytesIO(found.content)) as archive:
        document = archive.read("word/document.xml").decode()
    assert f">{translator.translate(LINE)}<" in document
    assert f">{translator.translate('Yes.')}<" in document
    assert "morning" not in document
    assert document.count("<w:p>") + document.count("<w:p />") == 3


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def word_field(says: str, text: str) -> str:
    begin, middle, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))
    return f"{begin}<w:r><w:instrText> {says} </w:instrText></w:r>{middle}{text}{end}"


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        (
            f"{run('Page ')}{word_field('PAGE', run('3'))}{run(' of ')}{word_field('NUMPAGES', run('9'))}",
            ["Page ", " of "],
        ),
        (
            f'{run("Page ")}<w:fldSimple w:instr=" PAGE "><w:ins>{run("3")}</w:ins></w:fldSimple>{run(".a")}',
            ["Page ", ".a"],
        ),
        (f"{run('See ')}{word_field('HYPERLINK x', run('this'))}{run('.')}", ["See this."]),
        (
            f'<w:pPr><w:tabs><w:tab w:pos="9"/></w:tabs></w:pPr>{run("Name")}<w:r><w:tab/></w:r>{run("Date")}',
            ["Name", "Date"],
        ),
        ("<w:r><w:t>Street</w:t><w:tab/><w:t>:</w:t><w:br/><w:t>Town</w:t></w:r>", ["Street", "Town"]),
        (f"<w:moveFrom>{run('Gone. ')}</w:moveFrom>{run('Here.')}", ["Here."]),
        (word_field("TOC", f"{run('Title')}<w:r><w:tab/></w:r>{word_field('PAGEREF x', run('3'))}"), ["Title"]),
    ],
)
def test_texts_of_a_word_paragraph(paragraph: str, expected: list[str]) -> None:
    """What Word writes itself stays, and what tabs and line breaks keep apart is not run together."""
    root = ElementTree.fromstring(f'<w:body xmlns:w="{WORD}"><w:p>{paragraph}</w:p></w:body>')
    assert ["".join(one.text or "" for one in texts) for texts in _paragraphs(root)] == expected


def test_a_word_paragraph_stays_when_changes_are_turned_down(served: Served, translator: Translator) -> None:
    body = f"<w:p><w:ins>{run('Good ')}</w:ins>{run('morning!')}</w:p><w:p><w:ins>{run('Yes.')}</w:ins></w:p>"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
    _, found = sent(served, "a.docx", packed.getvalue())
    assert found is not None
    with zipfile.ZipFile(io.BytesIO(found.content)) as archive:
        root = ElementTree.fromstring(archive.read("word/document.xml"))
    said = ["".join(one.text or "" for one in ins.iter(f"{{{WORD}}}t")) for ins in root.iter(f"{{{WORD}}}ins")]
    assert said == ["", translator.translate("Yes.")]
    assert [one.text for one in root.iter(f"{{{WORD}}}t")][1] == translator.translate(LINE)


def test_many_open_fields_take_no_time() -> None:
    """In time that goes up with the square of their number, this would take an hour."""
    parts = '<w:fldChar w:fldCharType="begin"/>', "<w:instrText>TOC toc toc toc</w:instrText>", "<w:t>a</w:t>"
    many = "".join(part * 50_000 for part in parts)
    root = ElementTree.fromstring(f'<w:p xmlns:w="{WORD}">{many}</w:p>')
    assert len(_paragraphs(root)[0]) == 50_000


def test_word_files_keep_what_prefixes_stand_for() -> None:
    """Also of those that are only named in values, and of two for one address."""
    spaces = 'xmlns="a" xmlns:m="b" xmlns:n="c" xmlns:o="c" xmlns:p="d" xmlns:ns1="e"'
    written = _written(*_parsed(f'<x {spaces} m:Ignorable="n o p"><n:y n:z="1"/><ns1:y/></x>'.encode()))
    declared = dict(told for _, told in ElementTree.iterparse(io.BytesIO(written), ["start-ns"]))
    assert {prefix: declared[prefix] for prefix in ("", *"mnop")} == {"": "a", "m": "b", "n": "c", "o": "c", "p": "d"}
    assert [element.tag for element in ElementTree.fromstring(written).iter()] == ["{a}x", "{c}y", "{e}y"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.pdf", b"%PDF"),
        (".txt", b"a"),
        ("a.txt", b"\xff\xfe"),
        ("a.docx", b"no archive"),
        ("a.docx", word(["a"])[:-30]),
        ("a.docx", word(["&x;"], head='<!DOCTYPE a [<!ENTITY x "y">]>')),
        ("a.docx", word(["<"])),
    ],
)
def test_what_is_no_such_file_is_refused(served: Served, name: str, content: bytes) -> None:
    found, _ = sent(served, name, content)
    assert (found.status_code, "error" in found.json()) == (400, True)


def test_files_need_a_file_and_languages(served: Served) -> None:
    found, _ = sent(served, "a.txt", b"a", target="zz")
    assert found.status_code == 400

    async def ask() -> list[int]:
        async with served.client as client:
            missing = await client.post("/translate_file", json={"source": "en", "target": "de"})
            paths = ["/download_file/nothing", "/download_file/..%2f..%2fetc%2fpasswd", "/download_file/../health"]
            return [missing.status_code, *[(await client.get(path)).status_code for path in paths]]

    assert asyncio.run(ask()) == [400, 404, 404, 200]


def test_kept_files_are_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = Downloads(seconds=100)
    token = downloads.keep("../etc/pass wd", b"a")
    assert downloads.fetch(token).name == "pass_wd"
    monkeypatch.setattr("longstride.serving.downloads.monotonic", lambda: 1e12)
    with pytest.raises(ServingError):
        downloads.fetch(token)


@pytest.mark.parametrize("size", [0, 1, MOST_BYTES // 10])
def test_kept_files_are_bounded_in_number_and_size(size: int) -> None:
    downloads = Downloads(seconds=100)
    tokens = [downloads.keep("a.txt", bytes(size)) for _ in range(MOST_FILES + 9)]
    kept = min(MOST_FILES, MOST_BYTES // size if size else MOST_FILES)
    assert [downloads.fetch(token).content for token in tokens[-kept:]] == [bytes(size)] * kept
    with pytest.raises(ServingError):
        downloads.fetch(tokens[-kept - 1])


@given(st.text(st.sampled_from("<>/abp \"'=!-é&;?") | st.characters(codec="utf-8"), max_size=50))
def test_parts_of_a_page_joined_are_the_page(text: str) -> None:
    assert "".join(run.text for run in runs(text)) == text


def test_what_is_not_to_be_translated() -> None:
    page = '<p>a<b translate="no">b<i>c</i></b>d</p><pre>e</pre><!-- f --><span class="x notranslate">g</span>h<br>i'
    assert [run.text for run in runs(page) if run.translated] == ["a", "d", "h", "i"]
    page = "<i class=notranslate>a</i><i translate=no>b</i><i class=translate>c</i>"
    assert [run.text for run in runs(page) if run.translated] == ["c"]


@pytest.mark.parametrize(
    "script",
    [
        "<script>for (i = 0; i < n; i++) {} for(j=0;j<n;j++){} // don't</script>",
        '<SCRIPT type="a>b">document.write("<!-- <p>");</Script >',
        "<style>/* <p> isn't */ a > b {}</style>",
        "<script/>",
    ],
)
def test_what_a_script_holds_is_no_tag(script: str) -> None:
    page = f"<p>a</p>{script}<p>b</p><p>it's c > d</p>"
    assert [run.text for run in runs(page) if run.translated] == ["a", "b", "it's c > d"]
    assert "".join(run.text for run in runs(page)) == page
