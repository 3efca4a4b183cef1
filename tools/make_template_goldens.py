#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/templates/goldens.json: chat templates and snippets with what Jinja2 makes of them.

The expected outputs come from the real Jinja2 (Debian: python3-jinja2), set up as Hugging Face does it:
trim_blocks, lstrip_blocks, loop controls, a sandbox, tojson without HTML escapes. Run it with a Python
that has jinja2; the tests only read the file.

    /usr/bin/python3 tools/make_template_goldens.py [--extra FOLDER --out FILE]

--extra adds every *.jinja file of a folder, rendered with every conversation: for trying collections of
templates that are not part of this project.
"""
import argparse
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
NOW_S = 1735689600 + 86400 * 36 + 3600 * 9 + 60 * 5 + 7  # 2025-02-06 09:05:07 UTC


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(now_s):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    if now_s:
        env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(
            now_s, datetime.timezone.utc).strftime(f)
    return env


def expect(template, variables, now_s):
    try:
        return {"output": environment(now_s).from_string(template).render(**variables)}
    except Exception as e:  # the sentence is Jinja's: only that it fails counts, and raise_exception's text
        own = type(e) is jinja2.exceptions.TemplateError
        return {"error": str(e) if own else "", "kind": type(e).__name__}


CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "  What is 2+2?\n"}],
    "turns": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": " Hello! "},
        {"role": "user", "content": "Täglich grüßt 日本 🙂\nnew line"},
    ],
    "long": [
        {"role": "system", "content": "Be kind.\n\nAlways."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nTwo"},
        {"role": "user", "content": "Three \"quoted\" & <b>"},
        {"role": "assistant", "content": "Four"},
        {"role": "user", "content": "Five"},
    ],
    "answered": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
    "odd": [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": ""}],
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place, with \"quotes\" and ü",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
            "required": ["city"],
        },
    },
}
TOOL_TALK = [
    {"role": "system", "content": "Use tools."},
    {"role": "user", "content": "Weather in Köln?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call12345", "type": "function",
         "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 1, "x": None, "f": 1.5}}}]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"t\": 7}"},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "again"},
    {"role": "assistant", "content": "Seven degrees."},
    {"role": "user", "content": "Thanks"},
]

def call(name, arguments):
    return {"id": "call1", "type": "function", "function": {"name": name, "arguments": arguments}}


# For templates whose calls are written argument by argument and whose thoughts are kept since the last question.
THOUGHTS = {
    "reasoning": [
        {"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "reasoning_content": "\nhm\n\n", "content": "Hello"}, {"role": "user", "content": "And?"},
        {"role": "assistant", "reasoning_content": "so", "content": "this"}],
    "inline": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>\nlong\n\nthought\n</think>\n\nHello"},
        {"role": "user", "content": "And?"}, {"role": "assistant", "content": "<think>\n\n</think>\n\nthis </think> x"}],
    "calls": [
        {"role": "user", "content": "Do"},
        {"role": "assistant", "content": "I call.", "reasoning_content": "r", "tool_calls": [
            call("get_weather", {"city": "Köln", "days": 2, "deep": {"a": [1, {"b": None}], "q": "\"'\\ü"},
                                 "list": ["x", 1.5, True], "flag": False, "none": None, "big": 1e20, "neg": -0.5}),
            call("get_weather", {"city": "a\nb\n"}), call("now", {})]},
        {"role": "tool", "content": "7"},
        {"role": "tool", "content": [{"type": "text", "text": "8"}, {"type": "text", "text": " 9"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "now", "arguments": {"x": "1"}}]},
        {"role": "tool", "content": "last"}],
    "results": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "<think>z</think>w", "tool_calls": [call("now", {})]},
        {"role": "user", "content": "<tool_response>\n1\n</tool_response>"},
        {"role": "assistant", "content": "<think>z</think>w"}],
    "parts": [
        {"role": "system", "content": [{"type": "text", "text": "S"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}]}],
    "late system": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}],
    "no question": [{"role": "system", "content": "b"}],
    "no messages": [],
    "odd role": [{"role": "user", "content": "a"}, {"role": "wizard", "content": "b"}],
}

# Families of published templates: their markup, written out here.
TEMPLATES = {
    "llama3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
        "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + "
        "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
        "{% endif %}"),
    "bitnet-2b-4t": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = message['role'] | "
        "capitalize + ': '+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = "
        "bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ 'Assistant: ' }}{% endif %}"),
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
        "{% endif %}"),
    "chatml-default-system": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + "
        "message['content']}}{% if (loop.last and add_generation_prompt) or not loop.last %}"
        "{{ '<|im_end|>' + '\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt and "
        "messages[-1]['role'] != 'assistant' %}{{ '<|im_start|>assistant\\n' }}{% endif %}"),
    "falcon3": (
        "{%- for message in messages %}\n{%- if message['role'] == 'system' %}\n"
        "{{- '<|system|>\\n' + message['content'] + '\\n' }}\n{%- elif message['role'] == 'user' %}\n"
        "{{- '<|user|>\\n' + message['content'] + '\\n' }}\n{%- elif message['role'] == 'assistant' %}\n"
        "{%- if not loop.last %}\n{{- '<|assistant|>\\n' + message['content'] + eos_token + '\\n' }}\n{%- else %}\n"
        "{{- '<|assistant|>\\n' + message['content'] + eos_token }}\n{%- endif %}\n{%- endif %}\n"
        "{%- if loop.last and add_generation_prompt %}\n{{- '<|assistant|>\\n' }}\n{%- endif %}\n{%- endfor %}\n"),
    "llama2": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
        "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
        "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
        "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"),
    "mistral": (
        "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
        "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
        "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}"
        "{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
        "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"),
    "phi3": (
        "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}"
        "{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}"
        "{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}"
        "{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"),
    "zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
        "{{ '<|user|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
        "{{ '<|system|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
        "{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
    "deepseek": (
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
        "{% set ns = namespace(is_first=false, is_tool=false, system_prompt='') %}"
        "{%- for message in messages %}{%- if message['role'] == 'system' %}"
        "{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}"
        "{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}"
        "{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and "
        "message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}"
        "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}"),
    # The next five use what the large templates with tools use, with wordings of our own.
    "tools-llama31-style": r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- A leading system message becomes part of the head. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\n" }}
{%- endif %}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("no first user message to put the tools in") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one tool call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""",
    "tools-qwen3-style": r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\nThese can be called:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nAnswer with\n<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in message.content %}
                {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
                {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
""",
    "tools-qwen35-style": r"""{%- set pictures = namespace(n=0) %}
{%- macro show(content, counted, in_system=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}
            {%- if 'image' in part or part.type == 'image' %}
                {%- if in_system %}
                    {{- raise_exception('no pictures here') }}
                {%- endif %}
                {%- if counted %}
                    {%- set pictures.n = pictures.n + 1 %}
                {%- endif %}
                {{- '[picture ' ~ pictures.n ~ ']' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- else %}
                {{- raise_exception('an unknown part') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('an unknown content') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}
    {{- raise_exception('no messages') }}
{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\n# Functions\n\n<tools>' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nCall them so:\n\n<tool_call>\n<function=name>\n<parameter=first>\nvalue\n</parameter>\n</function>\n</tool_call>" }}
    {%- if messages[0].role == 'system' %}
        {%- set content = show(messages[0].content, false, true)|trim %}
        {%- if content %}
            {{- '\n\n' + content }}
        {%- endif %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + show(messages[0].content, false, true)|trim + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, question=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" %}
        {%- set content = show(message.content, false)|trim %}
        {%- if not(content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
            {%- set ns.searching = false %}
            {%- set ns.question = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.searching %}
    {{- raise_exception('no question') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = show(message.content, true)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}
            {{- raise_exception('the system message comes first') }}
        {%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- set thought = thought|trim %}
        {%- if loop.index0 > ns.question %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + thought + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {%- if loop.first %}
                    {%- if content|trim %}
                        {{- '\n\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                    {%- else %}
                        {{- '<tool_call>\n<function=' + tool_call.name + '>\n' }}
                    {%- endif %}
                {%- else %}
                    {{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                {%- endif %}
                {%- if tool_call.arguments is defined %}
                    {%- for name, value in tool_call.arguments|items %}
                        {{- '<parameter=' + name + '>\n' }}
                        {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
                        {{- value }}
                        {{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>\n' }}
        {%- elif loop.last %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('an unknown role') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
""",
    "tools-macro-style": r"""{%- macro typed(schema) -%}
  {%- set types = {"string": "str", "integer": "int", "object": "dict"} -%}
  {%- if schema.type is defined and types.get(schema.type) -%}
    {{- types[schema.type] -}}
  {%- elif schema.type == "array" -%}
    {{- "list[" + typed(schema.items) + "]" -}}
  {%- else -%}
    {{- "Any" -}}
  {%- endif -%}
{%- endmacro %}
{{- bos_token }}<|im_start|>system
{% for tool in tools or [] %}
{%- set fn = tool.function if tool.function is defined else tool %}
def {{ fn.name }}(
{%- for name, schema in fn.parameters.properties.items() %}
{{- name }}: {{ typed(schema) }}{{ " = " ~ schema.default if schema.default is defined }}{{ ", " if not loop.last }}
{%- endfor %}): {{ fn.description|default("", true)|tojson }}
{% else %}
no tools
{% endfor %}
<|im_end|>
{% for message in messages if message.role != "system" %}
<|im_start|>{{ message.role }}
{{ message.content|trim }}
  {%- for call in message.tool_calls|default([]) %}
    [{{ call.id }}] {{ call.function.name }}({% for k, v in call.function.arguments|dictsort %}{{ k }}={{ v|tojson }}{{ ", " if not loop.last }}{% endfor %})
  {%- endfor %}

<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
""",
    "generation-blocks": (
        "{% for m in messages %}\n  {% if m.role == 'assistant' %}\n    {% generation %}\n{{ m.content }}{{ eos_token }}\n"
        "    {% endgeneration %}\n  {% else %}\n[{{ m.role }}] {{ m.content }}\n  {% endif %}\n{% endfor %}\n"),
}

V = {"a": 3, "b": "text", "c": [1, 2, 3, 4], "d": {"x": 1, "y": "two", "items": "shadow"}, "n": None, "t": True,
     "f": 2.5, "e": "", "u": "Grüße, 日本 🙂", "s": "  padded\t\n", "neg": -7,
     "objs": [{"k": "b", "v": 1}, {"k": "A", "v": 2}, {"k": "a", "v": None}], "words": ["delta", "Alpha", "charlie", "alpha"],
     "nested": {"l": [{"z": [1, {"q": "deep"}]}]}, "multi": "one\n\n  two\nthree", "quote": "it's \"so\"\\\n"}
SNIPPETS = """
{{ a }} {{ b }} {{ missing }} {{ n }} {{ t }} {{ f }} {{ c }} {{ d }}
{{ 1 + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ (1 + 2) * 3 }} {{ 1.5 + 1 }} {{ 3 * 1.0 }} {{ 10 / 5 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1e20 }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ 0.1 + 0.2 }} {{ 1e300 * 1e10 }} {{ 100.0 }} {{ 1_000 }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 9223372036854775807 }}
{{ "a" "b" 'c' }} {{ "a" + 'b' }} {{ 'x' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 + [3] }} {{ (1, 2) + (3,) }} {{ 'a' ~ 1 ~ none ~ 2.0 ~ missing }}
{{ 'tab\\tnl\\nq\\'dq\\"bs\\\\u\\u00e9x\\x41o\\101 k\\d' }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ 2 >= 2 }}
{{ 1 in c }} {{ 9 not in c }} {{ 'ex' in b }} {{ 'x' in d }} {{ 'q' in missing }} {{ '' in 'abc' }} {{ 'items' in d }}
{{ not true }} {{ not e }} {{ t and b }} {{ e or 'else' }} {{ none or 0 or '' or [] }} {{ 1 and 2 and 3 }} {{ not 1 in c }}
{{ 'yes' if a > 2 else 'no' }} {{ 'yes' if a > 5 }}|{{ 1 if 0 else 2 if 0 else 3 }} {{ ('a' if t else 'b') ~ 'c' }}
{{ missing is defined }} {{ a is defined }} {{ missing is undefined }} {{ n is none }} {{ a is not none }} {{ d.nope is defined }}
{{ b is string }} {{ a is string }} {{ a is number }} {{ f is number }} {{ t is number }} {{ d is mapping }} {{ c is mapping }}
{{ c is iterable }} {{ b is iterable }} {{ a is iterable }} {{ missing is iterable }} {{ n is iterable }} {{ c is sequence }} {{ d is sequence }} {{ a is sequence }}
{{ t is boolean }} {{ a is boolean }} {{ t is true }} {{ t is false }} {{ 1 is true }} {{ a is odd }} {{ a is even }} {{ 4 is even }}
{{ a is integer }} {{ f is float }} {{ f is integer }} {{ t is integer }} {{ a is eq 3 }} {{ a is equalto(3) }} {{ a is ne 3 }} {{ a is gt 2 }} {{ a is lt(2) }}
{{ 6 is divisibleby 3 }} {{ a is in c }} {{ a is not in [1] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'Abc' is lower }} {{ '1' is lower }}
{{ a is sameas a }} {{ range is callable }} {{ b is callable }} {{ 'trim' is filter }} {{ 'nope' is filter }}
{{ c[0] }} {{ c[-1] }} {{ c[1:3] }} {{ c[:2] }} {{ c[2:] }} {{ c[::-1] }} {{ c[::2] }} {{ c[3:0:-1] }} {{ c[-2:] }} {{ c[:-1] }} {{ c[10:] }} {{ c[9] }}|
{{ u[0] }} {{ u[2:5] }} {{ u[::-1] }} {{ u[-1] }} {{ u[7] }} {{ u|length }} {{ b[1:] }} {{ b[::2] }} {{ b[5:1:-1] }} {{ b[99] }}|
{{ d.x }} {{ d['y'] }} {{ d['items'] }} {{ d.get('x') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ nested.l[0].z[1].q }} {{ nested['l'][0]['z'][0] }} {{ c.0 }}
{{ n.foo }}|{{ b.foo }}|{{ a.foo }}|{{ d.foo }}|{{ c.foo }}|
{{ missing.foo }}
{{ missing['foo'] }}
{{ d.foo.bar }}
{{ missing + 1 }}
{{ 'a' + missing }}
{{ missing() }}
{{ -missing }}
{{ missing < 1 }}
{{ missing in 'abc' }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ [] + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ a() }}
{{ n|length }}
{{ 5|length }}
{% for x in none %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in missing %}a{% else %}empty{% endfor %}
{% for x in c %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}
{% for x in c %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }};{% endfor %}
{% for x in c %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}
{% for x in c %}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for x in c if x is odd %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}none{% endfor %}
{% for x in c if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }};{% endfor %}{{ d.keys()|list }}{{ d.values()|list }}
{% for (k, v) in d|items %}{{ k }}={{ v }};{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}{{ a }}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for ch in 'aü🙂' %}[{{ ch }}]{% endfor %}
{% for i in range(3) %}{% for j in range(i) %}{{ loop.depth }}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in range(2, 10, 3) %}{{ i }} {% endfor %}{{ range(5, 0, -2)|list }} {{ range(0)|list }}
{% for i in (1, 2), (3, 4) %}{{ i }}{% endfor %}
{% set x = 1 %}{% for i in c %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% for i in [1, 2] %}{{ x }}|{% set x = i %}{{ x }} {% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% for i in [] %}{% else %}{% set q = 1 %}{{ q }}{% endfor %}{{ q }}
{% set x, y = 1, 'b' %}{{ x }}{{ y }}{% set (p, q) = [3, 4] %}{{ p }}{{ q }}
{% set x = 1, 2 %}{{ x }}{{ x[1] }}
{% set x %}block {{ a }}{% set inner = 1 %}{% endset %}[{{ x }}]{{ inner }}{{ x|length }}
{% set x | upper | trim %} up {{ b }} {% endset %}[{{ x }}]
{% set ns = namespace(n=0, s='') %}{% for i in c %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }} {{ ns.s }} {{ ns.zz }}|
{% set ns = namespace({'k': 5}, j=6) %}{{ ns.k }}{{ ns.j }}{{ ns['k'] }}
{% set d.x = 5 %}
{% set ns = namespace() %}{% set ns.a %}text{% endset %}{{ ns.a }}
{% macro m(x, y=2, z='q') %}{{ x }}-{{ y }}-{{ z }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, z='w') }}{{ m(y=5, x=4) }}{{ m() }}
{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
{% macro m(x) %}[{{ x }}]{% endmacro %}{% set y = m('a') ~ m('b') %}{{ y|upper }}{{ y|length }}
{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(3) }}
{% set g = 'global' %}{% macro m() %}{{ g }}{% set g = 'local' %}{{ g }}{% endmacro %}{{ m() }}{{ g }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 'now' %}{{ m() }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(y=2) }}
{% with x = 1, y = a %}{{ x }}{{ y }}{% endwith %}{{ x }}
{% filter upper %}filtered {{ b }}{% endfilter %}
{% if a == 1 %}1{% elif a == 2 %}2{% elif a == 3 %}3{% else %}x{% endif %}
{% if missing %}1{% else %}2{% endif %}{% if c %}3{% endif %}{% if [] %}4{% endif %}{% if {} %}5{% endif %}{% if 0.0 %}6{% endif %}{% if 'False' %}7{% endif %}
{% raw %}{{ not evaluated }}{% endraw %} {%- raw -%}  x  {%- endraw -%}  y
a {#- comment -#} b {# another #}
 c
{{ s|trim }}|{{ s|trim|length }}|{{ 'xxaxx'|trim('x') }}|{{ 5|trim }}|
{{ b|upper }} {{ 'ABC'|lower }} {{ 'hello WORLD'|capitalize }} {{ "hello wORLD-foo (bar) it's"|title }} {{ u|upper }} {{ 'ÄÖÜ'|lower }} {{ missing|upper }}|
{{ "hello wORLD-foo (bar) it's x2y"|string }} {{ "hello wORLD-foo it's x2y".title() }} {{ 'élan Vital'.capitalize() }}
{{ c|join(', ') }} {{ c|join }} {{ objs|join('|', attribute='k') }} {{ missing|join(',') }}|{{ 'abc'|join('-') }} {{ [none, true, 1.0]|join(' ') }}
{{ c|first }} {{ c|last }} {{ b|first }} {{ b|last }} {{ []|first }}|{{ []|last }}|{{ d|first }}
{{ missing|default('x') }} {{ e|default('x') }} {{ e|default('x', true) }} {{ n|default('x') }} {{ n|d('x', boolean=true) }} {{ missing|default }}|
{{ 'aXbXc'|replace('X', '-') }} {{ 'aXbXc'|replace('X', '-', 1) }} {{ 123|replace('2', 'two') }} {{ 'ab'|replace('', '.') }} {{ 'abc'.replace('b', '') }}
{{ d|tojson }} {{ c|tojson }} {{ u|tojson }} {{ quote|tojson }} {{ n|tojson }} {{ t|tojson }} {{ f|tojson }} {{ '<&>'|tojson }} {{ (1, 'a')|tojson }}
{{ nested|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ []|tojson(indent=1) }}
{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ u|tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4}|tojson }}
{{ missing|tojson }}
{{ 'abc'|list }} {{ d|list }} {{ (1, 2)|list }} {{ 5|string }} {{ none|string }} {{ [1, 'x']|string }}
{{ '42'|int }} {{ ' 42 '|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ 4.9|int }} {{ -4.9|int }} {{ none|int }} {{ 'ff'|int(0, 16) }} {{ true|int }}
{{ '4.5'|float }} {{ 3|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ '1e3'|float }} {{ -5|abs }} {{ (-2.5)|abs }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(0, 'floor') }} {{ 5|round }} {{ 1.005|round(2) }}
{{ objs|map(attribute='k')|list }} {{ c|map('string')|join('') }} {{ words|map('upper')|list }} {{ objs|map(attribute='zz', default='-')|list }}
{{ words|map('replace', 'a', 'o')|list }} {{ objs|map(attribute='v')|list }} {{ [s, b]|map('trim')|join('+') }}
{{ objs|selectattr('v')|map(attribute='k')|list }} {{ objs|rejectattr('v')|map(attribute='k')|list }} {{ objs|selectattr('k', 'equalto', 'A')|list }}
{{ objs|selectattr('v', 'gt', 1)|list if false else objs[:2]|selectattr('v', '>', 1)|map(attribute='k')|first }} {{ objs|rejectattr('v', 'none')|list|length }}
{{ c|select('odd')|list }} {{ c|reject('odd')|list }} {{ [0, 1, '', 'a']|select|list }} {{ c|select('gt', 2)|list }} {{ [1, 'a', none]|select('string')|list }}
{{ c|reverse|list }} {{ b|reverse }} {{ [1, 2, 1, 'a', 'A']|unique|list }} {{ ['a', 'A']|unique(true)|list }}
{{ words|sort }} {{ words|sort(reverse=true) }} {{ words|sort(case_sensitive=true) }} {{ objs|sort(attribute='k')|map(attribute='v')|list }} {{ [3, 1, 2]|sort }}
{{ [1, 'a']|sort }}
{{ {'b': 2, 'A': 3, 'c': 1}|dictsort }} {{ {'b': 2, 'A': 3, 'c': 1}|dictsort(true) }} {{ {'b': 2, 'A': 3, 'c': 1}|dictsort(by='value') }} {{ {'b': 2, 'a': 3}|dictsort(reverse=true) }}
{{ multi|indent }}|{{ multi|indent(2, true) }}|{{ multi|indent(2, blank=true) }}|{{ multi|indent('> ') }}
{{ 'a\\n'|indent(2) }}|{{ ''|indent(2, true) }}|
{{ c|sum }} {{ objs[:2]|sum(attribute='v') }} {{ [1.5, 2]|sum }} {{ []|sum }} {{ c|sum(start=10) }} {{ c|max }} {{ c|min }} {{ words|max }} {{ words|min }} {{ []|max }}|
{{ '<a href="x">&\\'</a>'|e }} {{ 'x'|safe }} {{ '%s-%d'|format('a', 5) }} {{ '%s' % 'x' }} {{ '%.2f%%' % 1.005 }} {{ '%s %s' % (1, none) }}
{{ d|items|list }} {{ missing|items|list }} {{ c|count }} {{ d|length }} {{ ''|length }} {{ missing|length }}
{{ b|nosuchfilter }}
{{ b is nosuchtest }}
{% if false %}{{ b.nosuchmethod() }}{% endif %}ok
{{ b.nosuchmethod() }}
{{ c.append(5) }}
{{ d.update({'q': 1}) }}
{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ 'abc\\n\\n'.rstrip('\\n') }}|{{ 'ü日ü'.strip('ü') }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ ''.split(',') }} {{ ''.split() }} {{ ' a b  c '.split(none, 1) }} {{ 'a--b'.split('--')[1] }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b'.rsplit(',') }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'ab'.partition('=') }}
{{ b.startswith('te') }} {{ b.startswith('x') }} {{ b.endswith('xt') }} {{ b.startswith(('a', 't')) }} {{ b.endswith(()) }} {{ b.startswith('') }}
{{ b.upper() }} {{ 'ABC'.lower() }} {{ ', '.join(['a', 'b']) }} {{ ''.join([]) }} {{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('z') }} {{ '日本語'.find('語') }} {{ 'aXbX'.count('X') }}
{{ ', '.join([1]) }}
{{ '{} and {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}-{{}}'.format(x=3) }}
{{ '123'.isdigit() }} {{ '12a'.isdigit() }} {{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \\t'.isspace() }} {{ ''.isdigit() }} {{ 'ab'.islower() }} {{ 'AB'.isupper() }}
{{ c.index(3) }} {{ c.count(1) }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}
{{ {'a': 1, 'b': [1, {'c': 2}]} }} {{ {'a': {'b': 1}} }} {{ [] }} {{ {} }} {{ () }} {{ (1,) }} {{ [1, [2, [3]]] }} {{ {1: 'a', 'k': none} }}
{{ ["it's", 'say "hi"', 'both \\' and "', 'nl\\n', 'ü', '\\x01'] }}
{{ {'a': 1}['a'] }} {{ {'a': 1}.a }} {{ [1, 2][0] }} {{ 'abc'[1] }} {{ (1, 2)[1] }} {{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2).y }}
{{ {'a': 1} == {'a': 1} }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }} {{ 'a' == 'a' }} {{ none == false }} {{ missing == missing2 }} {{ missing == none }} {{ 1 == '1' }}
{{ a, b }} {{ (a, b)|join('+') }}
{{ a|string + b }} {{ 'x' + c|length|string }} {{ 'x' ~ c|length }} {{ -a|abs }} {{ a + -a }} {{ not a is defined }} {{ a is defined and b }}
{{ c|length > 3 and c[0] == 1 or false }} {{ (c|length) - 1 }} {{ c|length - 1 }} {{ 'n: ' ~ c|join(',') ~ '!' }}
{{ 'x' ~ c|length + 1 }}
{{ n|select('x')|list }} {{ n|map('upper')|list }} {{ n|selectattr('x')|list }} {{ 0|rejectattr('a')|list }}
{{ raise_exception('stop: ' ~ a) }}
{% if a > 100 %}{{ raise_exception('no') }}{% endif %}fine
{{ range(100001) }}
{{ range(10, 'x') }}
{{ 'a' * -1 }}|{{ [1] * 0 }}|{{ true + 1 }} {{ true and 'x' }} {{ +a }} {{ - -a }} {{ False }}{{ True }}{{ None }}
{{ c[1:'x'] }}
{{ loop }}
{% for m in objs %}{{ m.k }}{{ m['v'] }}{% set last = m %}{% endfor %}{{ last }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%A %B %d, %Y %H:%M:%S %j %y %%') }} {{ strftime_now('%Y-%m-%d') }}
{{ nested.l|map(attribute='z')|list }} {{ nested.l|map(attribute='z.1.q')|first }} {{ objs|map(attribute='k')|map('upper')|sort|join }}
{{ words|join(', ')|upper|replace('A', '4')|length }} {{ '  x  '|trim|upper ~ '!' }}
{{ 'caf\\u00e9' == 'café' }} {{ 'ẞ'|lower }} {{ 'straße'|upper }} {{ 'ß'|capitalize }} {{ 'ﬀ'|length }} {{ 'Ａ'|lower }}
""".strip("\n").split("\n")

# Texts with several lines: white space.
BLOCKS = [
    "  {% if true %}\n  yes\n  {% endif %}\nend\n",
    "a\n  {%- if true %}\n b {%- endif -%}  \n c\n",
    "{% for i in [1, 2] %}\n  - {{ i }}\n{% endfor %}\nx",
    "{% for i in [1, 2] -%}\n  - {{ i }}\n{%- endfor %}\nx\n\n",
    "  {%+ if true %}\n x{% endif +%}\n y",
    "\t{# note #}\ntext {# n #} more\n  {#- n -#}  \n x",
    "{{ 1 }}\n{{ 2 -}}  \n {{- 3 }}\n\n",
    "x {% set a = 1 %}\n y {{ a }}\n",
    "   {% set a = 1 %}   {% set b = 2 %}\n{{ a }}{{ b }}",
    "text   {% if 1 %} in {% endif %}   text\n   {% if 1 %}\nin\n   {% endif %}   \ntext",
    "a\r\nb\r{% if 1 %}\r\nc{% endif %}\r\nd\r\n",
    "{% raw %}\n  {{ x }}\n{% endraw %}\ny",
    "  {%- raw %} {% if %} {% endraw -%}  z",
    "{{ {'a': {'b': 1}} }}{{ {'a': {'b': {}}}['a'] }}",
    "{{ '}}' }}{{ \"%}\" }}{% if '%}' == '%}' %}ok{% endif %}",
    "{{ [\n  1,\n  2,\n] }}{{ {\n 'a':\n 1,\n} }}",
    "\n\n  {% if true %}\n\n  a\n\n  {% endif %}\n\n",
    "{% if true %}a{% else %}b{% endif %}\n{% if false %}a{% else %}b{% endif %}\n",
    "{%if true%}x{%endif%}{{1}}{#c#}",
    "{{- '\\n' -}} {{ ' a ' -}}   b",
    "{{ \"line\\\ncontinued\" }}",
    "{",
    "{ { } } {a} }} %} #}",
    "100% {sure} #1",
    "",
    "\n",
    "plain",
    "   {# a #}   {# b #}\nx",
    "{% set x %}\n  a\n{% endset %}\n[{{ x }}]",
    "{% macro m() %}\n  in\n{% endmacro %}\n[{{ m() }}]",
    "{% macro m() -%}\n  in\n{%- endmacro %}\n[{{ m() }}]",
    "\u00a0{%- if true %}\u2003x{% endif %}",
    "a\n\u00a0{% if true %}x{% endif %}",
    # errors
    "{{", "{{ a", "{% if", "{% if a %}", "{% for x in y %}", "{% endif %}", "{% else %}", "{{ a b }}", "{{ }}",
    "{{ 'open }}", "{# open", "{% nosuchtag %}", "{{ a. }}", "{{ a[ }}", "{{ (1 }}", "{{ 1) }}", "{{ a | }}", "{{ a is }}",
    "{% for x y %}{% endfor %}", "{% set %}", "{% set 5 = 1 %}", "{% macro %}{% endmacro %}", "{{ 1 + }}", "{{ * 2 }}",
    "{{ {'a' 1} }}", "{{ [1 2] }}", "{{ f(a=1, 2) }}", "{{ @ }}", "{% if a %}{% endfor %}", "{% raw %}x", "{{ a.5b }}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{{ 'a' if }}", "{% break %}",
]


def chat_cases():
    for name, template in TEMPLATES.items():
        for title, messages in CONVERSATIONS.items():
            for prompt in (True, False):
                yield f"{name}/{title}/{'prompt' if prompt else 'no-prompt'}", template, {
                    "messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>",
                    "tools": None}, 0
        if name.startswith("tools-"):
            for extra in ({}, {"enable_thinking": False, "tools_in_user_message": False}):
                yield f"{name}/tools/{len(extra)}", template, {
                    "messages": TOOL_TALK, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
                    "tools": [TOOL, TOOL], **extra}, NOW_S


    for title, messages in THOUGHTS.items():
        for thinking in (True, False):
            yield f"tools-qwen35-style/{title}/{thinking}", TEMPLATES["tools-qwen35-style"], {
                "messages": messages, "add_generation_prompt": title != "inline", "enable_thinking": thinking,
                "tools": [TOOL] if thinking else None}, 0


def all_cases():
    yield from chat_cases()
    for i, snippet in enumerate(SNIPPETS):
        yield f"snippet/{i}", snippet, V, NOW_S
    for i, block in enumerate(BLOCKS):
        yield f"block/{i}", block, {}, 0


def extra_cases(folder):
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        for title, messages in [*CONVERSATIONS.items(), *THOUGHTS.items(), ("tools", TOOL_TALK)]:
            for tools in ([None, [TOOL]] if title in ("tools", "calls") else [None]):
                yield f"{path.name}/{title}/{bool(tools)}", path.read_text(), {
                    "messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
                    "tools": tools}, NOW_S


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--extra")
    ap.add_argument("--out", default=str(HERE.parent / "tests" / "data" / "templates" / "goldens.json"))
    args = ap.parse_args()
    cases, variables = [], []
    for name, template, v, now_s in extra_cases(args.extra) if args.extra else all_cases():
        if v not in variables:
            variables.append(v)
        cases.append({"name": name, "template": template, "vars": variables.index(v), "now_s": now_s,
                      **expect(template, v, now_s)})
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump({"made_by": "tools/make_template_goldens.py with Jinja2 " + jinja2.__version__,
                   "vars": variables, "cases": cases}, f, ensure_ascii=False, indent=1)
        f.write("\n")
    failing = sum("error" in c for c in cases)
    print(f"{len(cases)} cases, {failing} of them errors: {args.out}")


if __name__ == "__main__":
    main()
