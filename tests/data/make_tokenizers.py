#!/usr/bin/env python3
"""Makes tokenizers.json, which text_tokens.c reads; tokenizers 0.23.3 made the committed one:

    make_tokenizers.py FOLDER [MINILM [GPT2]]

Trains small models on the sentences below, and writes what the library `tokenizers` makes of texts
with them.  "models" has the texts of tokenizer.json's member "model"; each of "cases" the other
members as a text, "ids" with special tokens, "offsets" in bytes, and "decoded" texts without and
with special tokens; "pairs" has pairs of texts, cut and padded.  "texts" are in hexadecimal.
MINILM and GPT2 are the folders of real tokenizers, for "real".
"""
import json
import sys
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

SENTENCES = """
The quick brown fox jumps over the lazy dog, and nobody knows why it doesn't stop.
A network learns slowly; we've measured that it'll need 1,234 steps, I'm sure they're enough.
Training The Der Training The Der.
Training on 60000 images took 3.14 hours in 2024. What a pity! Isn't it? (Yes, it is.)
Tokenization splits words into pieces: un-believ-able, re-train-ing, token-iz-er.
Der schnelle braune Fuchs springt über den faulen Hund; Grüße aus Köln, außer am Samstag.
Le cœur a ses raisons que la raison ne connaît point ; où est passé l'élève ? Ça va déjà.
Η γρήγορη αλεπού πηδάει πάνω από το σκυλί. Ὁ λόγος ἀληθής ἐστιν.
Быстрая лиса прыгает через ленивую собаку, а ёж спит под ёлкой.
الثعلب السريع يقفز فوق الكلب الكسول. مرحبا بالعالم.
השועל המהיר קופץ מעל הכלב העצלן. שָׁלוֹם עוֹלָם
तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है। नमस्ते दुनिया
敏捷的狐狸跳过了懒狗。自然语言处理很有意思。
素早い狐がのろまな犬を飛び越える。カタカナとひらがな、漢字。
빠른 여우가 게으른 개를 뛰어넘는다. 안녕하세요 세계
Visit https://example.org/path?query=1&x=%20#top or write to someone@example.com now.
"""

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "They've said: \"it'll work, won't it?\" I'M SURE WE'RE FINE, you'd see 'tis so's 'Re",
    "Grüße aus Köln: außer SAMSTAG, STRASSE, Ärger, ÖL",
    "Le cœur connaît l'élève où ÇA va déjà; Éé E\u0301e\u0301",
    "Η γρήγορη ΑΛΕΠΟΥ λόγος ΛΌΓΟΣ ἀληθής ᾧ",
    "Быстрая ЛИСА, ёж ЁЖ Йод и\u0306",
    "الثعلب السَّرِيع ٣٤٥ مرحبا لا",
    "שָׁלוֹם עוֹלָם השועל",
    "तेज़ लोमड़ी क्षत्रिय ४५६ नमस्ते।",
    "敏捷的狐狸跳过了懒狗。自然语言，处理！𠀀𪜀㐀豈",
    "素早い狐がカタカナとﾊﾝｶｸひらがな。が゛",
    "빠른 여우가 게으른 개를 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "emoji: 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ 1️⃣ ☕️",
    "combining: a\u0301\u0323\u0302 q\u0307\u0323 \u0301x A\u030a Å \u212b o\u0308\u0304",
    "ﬁne ﬂow ½ ² ③ Ⅷ ℌ ｆｕｌｌ　ｗｉｄｔｈ ﷺ … ™",
    "İstanbul ISPARTA ıİ ẞß ŒœÆæ ǅǆ Σς",
    "tabs\tand\nnewlines\r\nand  two   three    spaces \n\n\n end\u00a0nbsp\u2003em\u3000id",
    "control \x01\x02\x7f\x85 \u200b zero \u200c\u200d \u2060 \ufeff bom \u00ad soft \ue000 \ufffd",
    "",
    " ",
    "     ",
    "\n",
    " \n \t ",
    "  leading and trailing  ",
    "1234567890 3.14159 1,000,000 12ab34 ٠١٢ x²",
    "https://example.org/path?query=1&x=%20#top someone@example.com C:\\dir\\file_name.txt",
    "a" * 120,
    "supercalifragilisticexpialidocious" * 4,
    "unbelievable retraining tokenizers",
    "[CLS] not [MASK] special[SEP]x <s> </s> <|endoftext|> <mask>.",
    "the word new and NEW, renew newer \tnew\t new! tight  lefty  righty  ",
    "!!! ... ??? ---___--- $100 + 5% = <tag> `code` ^_^ ~",
    "«quotes» “double” ‘single’ – — ‐ ¡hola! ¿qué? § ¶ † ‡ •",
    "▁underscore ▁▁two Ġbyte ĊĉÄ ##hash ## #",
    "\u1e9b\u0323 \u03d3 \u01c6 \ufb2c \u0f71\u0f72\u0f74 \u302f\u302b\u302a",
    "it''s 's's '’s O'Neill don''t ''''",
    "a\r\nb\n\n  c\r\r\n d \n",
    "９９ ²³ 𝟘𝟙 Ⅻ 〇 一二三",
    "Ⓐⓑ🄰🅐 ͅ _x_ a‿b",
    "'The 'Der 'Training 'Le 'Re it'S it'\u017f \u0130'",
]

BROKEN = [b"\xff\xfe", b"ok \xc3( \xe2\x82 end", b"\xf0\x9f\x98 \x80\x80 \xed\xa0\x80 \xc0\xaf",
          b"cut \xe6\x97"]


def specials(*names):
    return [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for i, name in enumerate(names)]


def template(cls, sep, ids, types=(0, 1)):
    def special(name, kind):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}
    a, b = types
    return {"type": "TemplateProcessing",
            "single": [special(cls, a), text("A", a), special(sep, a)],
            "pair": [special(cls, a), text("A", a), special(sep, a), text("B", b), special(sep, b)],
            "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                               for name in (cls, sep)}}


def trained():
    """The models by name: the texts of member "model"."""
    lines = SENTENCES.strip().split("\n")
    out = {}
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(lines * 4, trainers.WordPieceTrainer(
        vocab_size=620, special_tokens=names, show_progress=False))
    out["wordpiece"] = t
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(lines * 4, trainers.BpeTrainer(
        vocab_size=460, special_tokens=["<s>", "</s>", "<|endoftext|>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    out["bytes"] = t
    fallback = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(lines[:7] * 4, trainers.BpeTrainer(
        vocab_size=420, special_tokens=fallback, show_progress=False))
    out["pieces"] = t
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>",
                             continuing_subword_prefix="##"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(lines[:5] * 4, trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>",
        continuing_subword_prefix="##", show_progress=False))
    out["suffix"] = t
    return {name: json.loads(t.to_str())["model"] for name, t in out.items()}


def cases():
    """Rows of name, model, members of tokenizer.json."""
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": True}
    five = specials("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    four = specials("<s>", "</s>", "<|endoftext|>", "<mask>")
    bert_ids = {"[CLS]": 2, "[SEP]": 3}
    pieces = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    plain = {"pre_tokenizer": {"type": "BertPreTokenizer"}, "added_tokens": five}
    yield "bert", "wordpiece", {**plain, "normalizer": bert, "decoder": pieces,
                                "post_processor": template("[CLS]", "[SEP]", bert_ids)}
    yield "cased", "wordpiece", {
        **plain, "normalizer": {**bert, "lowercase": False},
        "decoder": {**pieces, "cleanup": False},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}}
    yield "accents", "wordpiece", {
        **plain, "normalizer": {**bert, "clean_text": False, "handle_chinese_chars": False,
                                "strip_accents": True, "lowercase": False}}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    yield "gpt2", "bytes", {"added_tokens": four, "pre_tokenizer": level, "decoder": level,
                            "post_processor": {**level, "trim_offsets": False}}
    yield "roberta", "bytes", {
        "added_tokens": [{**a, "lstrip": a["content"] == "<mask>"} for a in four],
        "pre_tokenizer": {**level, "add_prefix_space": True}, "decoder": level,
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0],
                           "trim_offsets": True, "add_prefix_space": True}}
    gpt4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+"
            r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

    def split(pattern):
        return {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
             "invert": False}, {**level, "use_regex": False}]}
    one = template("<s>", "</s>", {"<s>": 0, "</s>": 1}, (0, 0))
    yield "llama3", "bytes", {
        "added_tokens": four, "pre_tokenizer": split(gpt4), "decoder": level,
        "post_processor": {"type": "Sequence", "processors": [level, one]}}
    yield "qwen2", "bytes", {"normalizer": {"type": "NFC"}, "decoder": level,
                             "pre_tokenizer": split(gpt4.replace("{1,3}", ""))}
    yield "split", "bytes", {"pre_tokenizer": split(gpt2), "decoder": level}
    mark = {"String": "\u2581"}
    yield "llama2", "pieces", {
        "added_tokens": specials("<unk>", "<s>", "</s>"),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": mark, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}
    space = {"type": "Metaspace", "replacement": "\u2581"}
    for scheme, cut in (("always", True), ("first", True), ("never", False)):
        part = {**space, "prepend_scheme": scheme, "split": cut}
        yield "metaspace-" + scheme, "pieces", {
            "added_tokens": specials("<unk>", "<s>", "</s>"), "pre_tokenizer": part,
            "decoder": part}

    def sequence(*types):
        return {"type": "Sequence", "normalizers": [{"type": t} if isinstance(t, str) else t
                                                    for t in types]}

    def splits(*types):
        return {"type": "Sequence", "pretokenizers": [{"type": t} if isinstance(t, str) else t
                                                      for t in types]}
    yield "words", "wordpiece", {"normalizer": sequence("NFD", "Lowercase", "StripAccents"),
                                 "pre_tokenizer": {"type": "Whitespace"}, "decoder": pieces}
    forms = ["NFC", "NFD", "NFKC", "NFKD", "NFKC"]
    behaviors = ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
    for form, behavior in zip(forms, behaviors):
        yield behavior, "bytes", {
            "normalizer": sequence(form, {"type": "Strip", "strip_left": form != "NFC",
                                          "strip_right": form != "NFD"}),
            "pre_tokenizer": splits("WhitespaceSplit",
                                    {"type": "Punctuation", "behavior": behavior},
                                    {"type": "Digits", "individual_digits": form == "NFC"},
                                    {**level, "use_regex": False}), "decoder": level}
    for behavior in behaviors:
        yield "string-" + behavior, "wordpiece", {
            "pre_tokenizer": {"type": "Split", "pattern": {"String": "e "}, "behavior": behavior,
                              "invert": False}}
    yield "suffix", "suffix", {"pre_tokenizer": {"type": "Whitespace"}}
    words = [("new", {"single_word": True}), ("tight", {"normalized": False}),
             ("lefty", {"lstrip": True}), ("righty", {"rstrip": True}),
             ("ÄRGER", {"normalized": True}), ("Straße", {"normalized": False, "special": True})]
    yield "added", "wordpiece", {
        **plain, "normalizer": bert, "decoder": pieces,
        "added_tokens": five + [
            {"id": 620 + i, "content": word, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": True, "special": False, **more}
            for i, (word, more) in enumerate(words)]}


def made(model, parts):
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
             "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
             **parts, "model": model}
    return Tokenizer.from_str(json.dumps(whole))


def in_bytes(text, offsets):
    """Pairs of places in characters as a flat list of places in bytes."""
    places = [0]
    for c in text:
        places.append(places[-1] + len(c.encode()))
    return [places[i] for pair in offsets for i in pair]


def encoded(tokenizer, texts):
    rows = [tokenizer.encode(text) for text in texts]
    return {"ids": [row.ids for row in rows],
            "decoded": [[tokenizer.decode(row.ids, skip_special_tokens=skip)
                          for skip in (True, False)] for row in rows]}


def can_cut(tokenizer, a, b):
    """Whether the text that is cut is long enough for that."""
    try:
        return bool(tokenizer.encode(a, b))
    except Exception:           # the library raises no other class
        return False


def pairs(models_by_name):
    """Pairs of texts, cut and padded in several ways."""
    rows = {name: (model, parts) for name, model, parts in cases()}
    texts = [TEXTS[i] for i in (0, 1, 2, 19, 28, 31)]
    for name in ("bert", "roberta", "gpt2", "llama3"):
        for strategy, side in (("longest_first", "right"), ("longest_first", "left"),
                               ("only_first", "right"), ("only_second", "left")):
            model, parts = rows[name]
            tokenizer = made(models_by_name[model], parts)
            most = 30 if strategy == "longest_first" else 60
            tokenizer.enable_truncation(most, strategy=strategy, direction=side)
            tokenizer.enable_padding(direction=side, pad_id=7, pad_type_id=1, pad_token="x",
                                     pad_to_multiple_of=8 if side == "left" else None)
            whole = json.loads(tokenizer.to_str())
            pair = list(zip(texts, texts[1:] + texts[:1]))
            pair = [(a, b) for a, b in pair if can_cut(tokenizer, a, b)]
            out = tokenizer.encode_batch(pair)
            yield {"case": name, "most": most,
                   "parts": json.dumps({k: v for k, v in whole.items() if k != "model"})[1:-1],
                   "first": [a.encode().hex() for a, b in pair],
                   "second": [b.encode().hex() for a, b in pair],
                   "ids": [row.ids for row in out], "mask": [row.attention_mask for row in out],
                   "types": [row.type_ids for row in out]}


def main():
    folder = Path(sys.argv[1])
    models_by_name = trained()
    raw = [text.encode() for text in TEXTS] + BROKEN
    texts = [text.decode("utf-8", "replace") for text in raw]
    out = {"made by": "tokenizers " + tokenizers.__version__, "texts": [t.hex() for t in raw],
           "models": {name: json.dumps(model) for name, model in models_by_name.items()},
           "cases": []}
    for name, model, parts in cases():
        tokenizer = made(models_by_name[model], parts)
        case = {"name": name, "model": model, "parts": json.dumps(parts)[1:-1],
                **encoded(tokenizer, texts)}
        if name in ("bert", "gpt2", "roberta", "llama2"):
            case["offsets"] = [in_bytes(text, tokenizer.encode(text).offsets)
                               for text in texts[:34]]    # later ones have marks out of order
        out["cases"].append(case)
    out["pairs"] = list(pairs(models_by_name))
    out["real"] = {}
    for name, path in zip(("minilm", "gpt2"), sys.argv[2:]):
        tokenizer = Tokenizer.from_file(path + "/tokenizer.json")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        out["real"][name] = [row.ids for row in tokenizer.encode_batch(texts)]
    (folder / "tokenizers.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
