"""Trains the demo's tokenizers on the demo's texts: `python -m gpu_tok.demo.make [FOLDER]`.

The reference's BPE trainer makes the same file every time; its WordPiece trainer breaks ties by chance, so that a new
vocabulary differs in some pieces.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from gpu_tok.demo import BYTE_LEVEL_BPE, WORDPIECE, texts

PIECES = 4000


def main(folder: Path) -> None:
    samples = [sample["text"] for sample in texts()]
    for name, tokenizer in ((WORDPIECE, train_wordpiece(samples)), (BYTE_LEVEL_BPE, train_byte_level_bpe(samples))):
        folder.joinpath(name).write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")


def train_wordpiece(samples: list[str]) -> Tokenizer:
    """As BERT's: uncased, words at white space and punctuation, pieces with `##` inside words."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=PIECES, special_tokens=special, limit_alphabet=PIECES, show_progress=False
    )
    tokenizer.train_from_iterator(samples, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def train_byte_level_bpe(samples: list[str]) -> Tokenizer:
    """As GPT-2's: every byte has a token, so every text comes back as it was."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(samples, trainer)
    return tokenizer


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
