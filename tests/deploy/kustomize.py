"""As much of kustomize as deploy/k8s uses: its tests need no cluster's tools. One holds it against the real one."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]
SELECTED = {"Deployment", "Job"}
"""Kinds with a pod template, which labels go into as well."""


def build(folder: Path) -> list[Resource]:
    """The resources that `kustomize build` prints for this folder; a generated ConfigMap keeps its plain name."""
    return _built(folder, [])


def _built(folder: Path, below: list[Resource]) -> list[Resource]:
    """What the folder makes of the resources `below`, which a component changes and a kustomization has none of."""
    wanted = yaml.safe_load((folder / "kustomization.yaml").read_text())
    resources = [*below, *(one for name in wanted.get("resources", []) for one in _read(folder / name))]
    resources += [_config_map(folder, generator) for generator in wanted.get("configMapGenerator", [])]
    for component in wanted.get("components", []):
        resources = _built(folder / component, resources)
    for patch in wanted.get("patches", []):
        change = yaml.safe_load(patch.get("patch") or (folder / patch["path"]).read_text())
        resources = [_patched(one, change) if _meant(one, patch["target"]) else one for one in resources]
    for resource in resources:
        for labels in wanted.get("labels", []):
            _label(resource, labels["pairs"])
        for image in wanted.get("images", []):
            _set_image(resource, image)
        if "namespace" in wanted and resource["kind"] != "Namespace":
            resource["metadata"]["namespace"] = wanted["namespace"]
    return resources


def _read(path: Path) -> list[Resource]:
    return build(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))


def _config_map(folder: Path, generator: dict[str, Any]) -> Resource:
    data = {name: (folder / name).read_text() for name in generator["files"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}


def _meant(resource: Resource, target: dict[str, str]) -> bool:
    return resource["kind"] == target["kind"] and target.get("name") in {None, resource["metadata"]["name"]}


def _patched(resource: Resource, change: Any) -> Resource:
    if isinstance(change, dict):
        merged: Resource = _merged(
            resource, {key: change[key] for key in change.keys() - {"apiVersion", "kind", "metadata"}}
        )
        return merged
    result = copy.deepcopy(resource)
    for operation in change:
        assert operation["op"] == "remove"
        *way, last = operation["path"].strip("/").split("/")
        place = result
        for key in way:
            place = place[key]
        del place[last]
    return result


def _merged(below: Any, above: Any) -> Any:
    """Strategic merge: mappings by key, lists of named things by name, everything else is replaced."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {key: _merged(below.get(key), above[key]) if key in above else below[key] for key in below | above}
    if _named(below) and _named(above):
        names = {one["name"]: one for one in below}
        return [_merged(names.get(one["name"]), one) for one in above]
    return copy.deepcopy(above)


def _named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "name" in one for one in value)


def containers(resource: Resource) -> Iterator[dict[str, Any]]:
    if resource["kind"] in SELECTED:
        yield from resource["spec"]["template"]["spec"]["containers"]


def _label(resource: Resource, pairs: dict[str, str]) -> None:
    places = [resource, resource["spec"]["template"]] if resource["kind"] in SELECTED else [resource]
    for place in places:
        place.setdefault("metadata", {}).setdefault("labels", {}).update(pairs)


def _set_image(resource: Resource, image: dict[str, str]) -> None:
    for container in containers(resource):
        if container["image"] == image["name"]:
            container["image"] = f"{image['newName']}:{image['newTag']}"
