"""Write and read a small quantised weight file."""

import numpy as np
import torch
from gguf import GGUFWriter

from agentgym.training.rollout.models.pretrained import find_model, load_model

WIDTH, TOKENS = 32, ["a", "b", "ab", "<s>", "</s>"]
SHAPES = {
    **dict.fromkeys(("token_embd", "output"), (len(TOKENS), WIDTH)),
    **dict.fromkeys(("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"), (WIDTH,)),
    **{
        f"blk.0.{name}": (WIDTH, WIDTH)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    },
}

writer = GGUFWriter("small.gguf", "llama")
writer.add_context_length(64)
writer.add_embedding_length(WIDTH)
writer.add_block_count(1)
writer.add_feed_forward_length(WIDTH)
writer.add_head_count(2)
writer.add_head_count_kv(2)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_vocab_size(len(TOKENS))
writer.add_rope_dimension_count(WIDTH // 2)
writer.add_tokenizer_model("gpt2")
writer.add_token_list(TOKENS)
writer.add_token_types([1, 1, 1, 3, 3])
writer.add_token_merges(["a b"])
writer.add_bos_token_id(3)
writer.add_eos_token_id(4)
for name, shape in SHAPES.items():
    writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
model, tokenizer = load_model(find_model("small.gguf"), torch.device("cpu"), torch.float32)
assert model.get_input_embeddings().weight.shape == SHAPES["token_embd"]
assert set(TOKENS) <= set(tokenizer.get_vocab())
