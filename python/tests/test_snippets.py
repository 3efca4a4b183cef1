# SPDX-License-Identifier: Apache-2.0
"""The snippets of guides to 1-bit models, as they are printed there: only names of models are others'. Each runs in a
process of its own with the folder of models that holds what it names."""
import os
import subprocess
import sys

import pytest
from conftest import ROOT

SNIPPETS = {
    "transformers": '''
import torch
from bitnet import BitNetForCausalLM
model = BitNetForCausalLM.from_pretrained("bitnet-b1.58").to("cpu")
model.eval()
out = model.generate(torch.tensor([[1]]), max_new_tokens=32)
print(model.config.activation_dtype)
model.get_sign_flip_rate()
''',
    "cpu engine": '''
import numpy as np
prompts = ["Once upon a time", "The cat sat on the", "a"]
from bitnet.cpu.engine import BitNetCPUInferenceEngine
from bitnet.tokenizer import AutoTokenizer
engine = BitNetCPUInferenceEngine(model_path="bitnet-b1.58", max_batch_size=16, max_seq_len=2048, num_threads=16, use_mmap=True)
tokenizer = AutoTokenizer.from_pretrained("kyegomez/bitnet-b1.58")
encoded = tokenizer(prompts, padding="longest", truncation=True, max_length=1024, return_tensors="np")
logits = engine.forward(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"], temperature=0.7, top_k=50)
for i, logit in enumerate(logits):
    pred_id = np.argmax(logit[-1])
    print(f"Prompt {i+1}: {tokenizer.decode([pred_id])}")
''',
    "four threads": '''
import queue, threading
from bitnet.cpu.engine import BitNetCPUInferenceEngine
from bitnet.tokenizer import AutoTokenizer
engine = BitNetCPUInferenceEngine(model_path="bitnet-b1.58", activation_dtype="float16")
tokenizer = AutoTokenizer.from_pretrained("bitnet-b1.58")
batch = tokenizer(["Once upon a time", "The cat"], padding="longest", return_tensors="np")
tasks = queue.Queue(maxsize=32)
shapes = []
def worker():
    while True:
        batch = tasks.get()
        if batch is None:
            return
        shapes.append(engine.forward(**batch).shape)
threads = [threading.Thread(target=worker) for _ in range(4)]
for t in threads: t.start()
for _ in range(8): tasks.put(batch)
for t in threads: tasks.put(None)
for t in threads: t.join()
print(set(shapes), len(shapes))
''',
    "health": '''
from bitnet import BitNetForCausalLM
model = BitNetForCausalLM.from_pretrained("bitnet-b1.58").to("cpu").eval()
model.generate([[0, 390, 389]], max_new_tokens=32)
print(model.get_sign_flip_rate(), 0 <= model.repetition_score() <= 1, len(model.kv_entropy()))
''',
    "functions": '''
import numpy as np
from bitnet import bitnet_safe_preprocess, adaptive_topk, bitlinear_fast_forward
print(bitnet_safe_preprocess("zero\\u200dwidth soft\\u00adhyphen  \\ufe0f many   spaces"))
print(np.isfinite(adaptive_topk(np.linspace(0, 9, 100, dtype=np.float32), k=50, p=0.92)).sum())
print(bitlinear_fast_forward(np.ones((1, 8), np.float32), np.full((4, 8), 0b10101010, np.uint8), in_features=8, out_features=16).sum())
''',
    "core": '''
from bitnet_core import BitNetModel
model = BitNetModel.from_pretrained("bitnet/bitnet-b1.58", kv_cache_dtype="fp8", use_fast_kernels=True)
print(model.config.kv_cache_dtype)
''',
    "vllm": '''
from bitnet_vllm import BitNetAsyncLLMEngine
engine = BitNetAsyncLLMEngine(model="bitnet/bitnet-b1.58", tensor_parallel_size=1, max_num_seqs=8, max_num_batched_tokens=2048, enable_chunked_prefill=True)
import asyncio
async def main():
    async for output in engine.generate("Once upon a time"):
        pass
    print(output.outputs[0].finish_reason)
asyncio.run(main())
''',
}
PRINTED = {"transformers": "int8\n", "four threads": "{(2, 5, 4096)} 8\n", "health": "0.0 True 10\n",
           "functions": "zerowidth softhyphen many spaces\n28\n128.0\n", "core": "fp8_e4m3\n", "vllm": "length\n"}


@pytest.mark.parametrize("name", [pytest.param("transformers", marks=pytest.mark.torch), *list(SNIPPETS)[1:]])
def test_snippet(tmp_path, name, engine):
    likeliest = [engine.generate(p, max_new_tokens=1, temperature=0).text for p in ("Once upon a time", "The cat sat on the", "a")]
    printed = PRINTED.get(name, "".join(f"Prompt {i + 1}: {text}\n" for i, text in enumerate(likeliest)))
    (tmp_path / "bitnet-b1.58.gguf").symlink_to(ROOT / "models" / "stories-31m.gguf")
    done = subprocess.run([sys.executable, "-c", SNIPPETS[name]], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "BITNET_MODELS": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
