SHELL := /bin/bash
PYTHON_IN_VENV := .venv/bin/python
COMPILE := $(PYTHON_IN_VENV) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup run up test check format bench bench-localcloud chaos requirements clean

help: ## 列出所有命令 · list every command
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## 创建 .venv 并安装依赖 · create .venv and install the pinned packages
	@scripts/setup

run: setup ## 本地云上生成九张样片 · make nine pictures of the sample garment on the embedded cloud
	@$(PYTHON_IN_VENV) -m localcloud run $(ARGS)

up: setup ## 启动本地云并保持运行 · start the embedded cloud and the functions, and keep them running
	@$(PYTHON_IN_VENV) -m localcloud up $(ARGS)

test: setup ## 运行全部测试 · run every test
	@$(PYTHON_IN_VENV) -m pytest -n 3 --dist loadfile $(ARGS)

check: setup ## 代码检查：ruff、mypy、import-linter · ruff, mypy --strict, import-linter
	$(PYTHON_IN_VENV) -m ruff check .
	$(PYTHON_IN_VENV) -m ruff format --check .
	$(PYTHON_IN_VENV) -m mypy --strict
	$(PYTHON_IN_VENV) -c "from importlinter.cli import lint_imports_command as lint; lint()"

format: setup ## 自动排版 · let ruff put the code in order
	$(PYTHON_IN_VENV) -m ruff check --fix .
	$(PYTHON_IN_VENV) -m ruff format .

bench: setup ## 测量速度与成本比率 · measure speed and cost ratios; stores nothing
	@$(PYTHON_IN_VENV) -m scripts.bench $(ARGS)

bench-localcloud: setup ## 本地 Firestore、Cloud Tasks 与裸 gRPC 对比 · the emulators beside a bare gRPC server; stores nothing
	@$(PYTHON_IN_VENV) -m scripts.bench_localcloud $(ARGS)
	@$(PYTHON_IN_VENV) -m scripts.bench_localcloud_tasks $(ARGS)

chaos: setup ## 随机破坏一切，再核对有没有丢失或重复付费 · break everything from a seed, then check that nothing was lost
	@$(PYTHON_IN_VENV) -m scripts.chaos $(ARGS)

requirements: setup ## 升级并重新锁定依赖 · resolve and pin the packages anew
	$(COMPILE) --upgrade requirements.in -o requirements.txt
	$(COMPILE) --upgrade requirements-dev.in -o requirements-dev.txt

clean: ## 删除一切可再生的文件 · remove everything that can be made again
	rm -rf .venv .venv-* build out .local .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

include infra/targets.mk
