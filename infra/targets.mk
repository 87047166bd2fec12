# What the Makefile includes for shipping; it uses PYTHON_IN_VENV, COMPILE and setup from there.

ENV ?= dev
CHECKOV := .venv-checkov
AUDIT := .venv-audit
ENVIRONMENT_DIR := infra/terraform/environments/$(ENV)

.PHONY: package plan deploy rollback smoke checkov audit sbom bench-cold requirements-tools

package: setup ## 打包函数源码 · make the source archive that Terraform uploads
	@$(PYTHON_IN_VENV) -m scripts.package

plan: package ## 预览部署 · show what a deployment would change (ENV=dev|prod, STATE_BUCKET=…)
	cd $(ENVIRONMENT_DIR) && terraform init -backend-config=bucket=$(STATE_BUCKET) && terraform plan

deploy: package ## 部署 · terraform apply (ENV=dev|prod, STATE_BUCKET=…)
	cd $(ENVIRONMENT_DIR) && terraform init -backend-config=bucket=$(STATE_BUCKET) && terraform apply

rollback: ## 回滚 · deploy a former archive again (ENV=…, ARCHIVE=lookbook-….zip)
	cd $(ENVIRONMENT_DIR) && terraform apply -var secret_values={} -var former_archive=$(ARCHIVE)

smoke: ## 部署后冒烟测试 · look at the deployment from outside (ENV=dev|prod)
	@urls=$$(cd $(ENVIRONMENT_DIR) && terraform output -json lookbook) && \
	url() { python3 -c 'import json, sys; u = json.loads(sys.argv[1]); print(u["urls"][sys.argv[2]])' "$$urls" "$$1"; } && \
	python3 -m scripts.smoke --entry "$$(url entry)" --generate "$$(url generate)" --complete "$$(url complete)"

checkov: setup ## 检查 Terraform 的安全规则 · policy lint of the Terraform files
	@scripts/tool-env $(CHECKOV) infra/checkov-requirements.txt
	@$(CHECKOV)/bin/checkov --directory infra/terraform --framework terraform --compact --quiet --skip-download

audit: setup ## 检查依赖的已知漏洞 · known vulnerabilities of the pinned packages
	@scripts/tool-env $(AUDIT) infra/audit-requirements.txt
	@$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements.txt

sbom: setup ## 生成软件物料清单 · the bill of materials of what is deployed, CycloneDX JSON
	@scripts/tool-env $(AUDIT) infra/audit-requirements.txt
	@mkdir -p build
	@$(AUDIT)/bin/cyclonedx-py requirements requirements.txt --output-reproducible --output-file build/sbom.json
	@echo build/sbom.json

bench-cold: setup ## 测量各函数冷启动 · how long each function takes from nothing to its first answer
	@$(PYTHON_IN_VENV) -m scripts.bench_cold $(ARGS)

requirements-tools: setup ## 升级工具的依赖 · pin the packages of checkov, the audit and terraform's stand-in anew
	$(COMPILE) --upgrade infra/checkov-requirements.in -o infra/checkov-requirements.txt
	$(COMPILE) --upgrade infra/audit-requirements.in -o infra/audit-requirements.txt
	$(COMPILE) --upgrade tests/infra/terraform-requirements.in -o tests/infra/terraform-requirements.txt
