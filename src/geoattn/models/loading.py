"""Load a model by name, from a folder or a file, or from the hub. Safetensors only, never remote code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from geoattn._core.errors import GeoattnError
from geoattn._core.names import did_you_mean
from geoattn._core.read_limit import read_limit
from geoattn.datasets.hub import hub_reachable, only_cached
from geoattn.datasets.vocabulary import check_vocabulary, has_tokenizer, without_vocabulary
from geoattn.models.lvit import LViT, LViTConfig
from geoattn.models.lvit_file import load_lvit
from geoattn.models.model_size import check_settings, check_size
from geoattn.models.trusted_folder import check_code, check_folder, check_weights, weight_bytes
from geoattn.models.zoo import ZOO, Entry, entry_of

__all__ = ["load_model", "load_tokenizer"]


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    weights: Literal["pretrained", "random"] = "pretrained",
    classes: int | None = None,
    seed: int = 0,
    **changes: Any,
) -> nn.Module:
    """A model, in evaluation mode.

    Parameters
    ----------
    name_or_path
        A name: ``lvit-digits`` (its weights come with geoattn), ``lvit-mnist``, ``lvit-fashion-mnist``,
        ``lvit-cifar10``, ``bert-tiny``, ``electra-small``, ``vit-b16``, ``deit-b16``. Or a folder with
        config.json and model.safetensors, a file that `save_lvit` wrote, or ``owner/name`` of a repository of
        the hub.
    weights
        ``pretrained``, or ``random``: from the configuration alone, by ``seed``; a named model then needs no
        network.
    classes
        Give a classifier with so many classes; the head is new, by ``seed``, unless the weights have one that
        fits. None: the encoder alone by name; what the configuration says from a folder or the hub. L-ViT is
        always a classifier, of ten classes by default.
    changes
        Settings of the configuration to change, with random weights only: ``num_hidden_layers=2``,
        ``depth=2``.

    Notes
    -----
    Weights that do not fit the configuration are an error, not a warning: no part but the new head is left
    random.

    Examples
    --------
    >>> from geoattn.models import load_model
    >>> load_model("lvit-digits").config.tokens
    17
    >>> bert = load_model("bert-tiny", weights="random", classes=2, vocab_size=100)
    >>> bert.config.num_hidden_layers, bert.config.num_labels
    (2, 2)
    """
    if weights not in ("pretrained", "random"):
        raise GeoattnError(f"weights must be 'pretrained' or 'random'; got {weights!r}.")
    if changes and weights != "random":
        raise GeoattnError(
            f"pretrained weights fit only their own configuration; got {', '.join(changes)}: use weights='random'."
        )
    if classes is not None and (isinstance(classes, bool) or not isinstance(classes, int) or classes < 1):
        raise GeoattnError(f"classes must be a positive number, or None; got {classes!r}.")
    entry = entry_of(name_or_path) if isinstance(name_or_path, str) else None
    if entry is not None and entry.kind == "lvit":
        return _named_lvit(entry, weights, classes, seed, changes)
    if entry is None and os.path.isfile(name_or_path):
        if weights == "random" or classes is not None:
            raise GeoattnError(f"{name_or_path} is an L-ViT with its weights; load it without weights= and classes=.")
        return load_lvit(name_or_path)
    with _seeded(seed):
        if entry is not None and weights == "random":
            return _from_config(_named_config(entry, classes, changes), classes, bare=True).eval()
        source = _Source.of(name_or_path, entry)
        if source.local and weights == "pretrained":
            check_weights(Path(source.place))
        if weights == "random":
            config = source.config(classes, changes)
            source.check_size(config, classes, bare=False)
            return _from_config(config, classes, bare=False).eval()
        return source.model(classes, bare=entry is not None).eval()


def load_tokenizer(name_or_path: str | os.PathLike[str]) -> Any:
    r"""The tokenizer of a text model: by name, from a folder, or from the hub, as in `load_model`.

    A folder without the vocabulary is an error. Tokenizers of bytes have none and need no file.

    Examples
    --------
    A folder with a configuration and a vocabulary; by name it is ``load_tokenizer("bert-tiny")``:

    >>> import json, pathlib, tempfile, geoattn as ga
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    >>> _ = (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film"]))
    >>> ga.load_tokenizer(folder)("Good film").input_ids
    [2, 5, 6, 3]
    """
    entry = entry_of(name_or_path) if isinstance(name_or_path, str) else None
    if entry is not None and entry.kind != "text":
        raise GeoattnError(f"{entry.title} takes images; it has no tokenizer.")
    from transformers import AutoTokenizer

    source = _Source.of(name_or_path, entry)
    try:
        tokenizer = source.call(AutoTokenizer.from_pretrained)
    except GeoattnError:
        if source.local and not has_tokenizer(Path(source.place)):
            raise without_vocabulary(source.place) from None
        raise
    check_vocabulary(tokenizer, source.place)
    return tokenizer


def _named_lvit(entry: Entry, weights: str, classes: int | None, seed: int, changes: dict[str, Any]) -> LViT:
    if weights == "random":
        heads = {} if classes is None else {"classes": classes}
        config = LViTConfig.from_dict({**entry.config, **changes, **heads})
        with _seeded(seed):
            return LViT(config).eval()
    if not entry.embedded:
        own = ", ".join(e.name for e in ZOO.values() if e.embedded)
        raise GeoattnError(
            f"nobody published weights of {entry.title}: use weights='random' and train it, give a file that "
            f"save_lvit wrote, or take {own}, whose weights come with geoattn."
        )
    with as_file(files("geoattn.models") / "weights" / entry.embedded) as path:
        model = load_lvit(path)
    if classes not in (None, model.config.classes):
        raise GeoattnError(f"the weights of {entry.title} have {model.config.classes} classes; got classes={classes}.")
    return model


def _named_config(entry: Entry, classes: int | None, changes: dict[str, Any]) -> Any:
    import transformers

    config = getattr(transformers, f"{entry.architecture}Config")(**entry.config)
    return _changed(config, classes, changes, entry.title)


def _changed(config: Any, classes: int | None, changes: dict[str, Any], where: str) -> Any:
    for name, value in changes.items():
        if not hasattr(config, name):
            raise GeoattnError(f"the configuration of {where} has no setting {name}.")
        setattr(config, name, value)
    if classes is not None:
        config.num_labels = classes
    return config


def _model_class(config: Any, classes: int | None, *, bare: bool) -> tuple[Any, dict[str, Any]]:
    """The class of transformers to build, and its options."""
    import transformers
    from transformers import AutoModel, AutoModelForImageClassification, AutoModelForSequenceClassification

    if classes is not None:
        for auto in (AutoModelForImageClassification, AutoModelForSequenceClassification):
            if type(config) in auto._model_mapping:
                return _first(auto._model_mapping[type(config)]), {}
        raise GeoattnError(f"transformers has no classifier for {config.model_type}; leave classes out.")
    for name in () if bare else config.architectures or ():
        saved = getattr(transformers, name, None)
        if isinstance(saved, type) and issubclass(saved, transformers.PreTrainedModel):
            return saved, {}
    try:
        encoder = _first(AutoModel._model_mapping[type(config)])
    except KeyError:
        raise GeoattnError(f"transformers has no model for {config.model_type}.") from None
    # The pooler of a vision encoder is not in the published weights, and nothing here reads it.
    return encoder, {"add_pooling_layer": False} if config.model_type in ("vit", "deit") else {}


def _first(found: Any) -> Any:
    """Where transformers lists several classes, the first is the plain one."""
    return found[0] if isinstance(found, (tuple, list)) else found


def _from_config(config: Any, classes: int | None, *, bare: bool) -> nn.Module:
    build, options = _model_class(config, classes, bare=bare)
    try:
        return build(config, **options)
    except GeoattnError:
        raise
    except Exception as error:  # whatever numbers that do not fit make of it
        raise GeoattnError(f"the configuration of {build.__name__} does not work: {_one_line(error)}") from None


class _Source:
    """A folder, or a repository of the hub at one revision."""

    def __init__(self, place: str, title: str, *, revision: str = "main", local: bool) -> None:
        self.place, self.title, self.revision, self.local = place, title, revision, local

    @staticmethod
    def of(name_or_path: str | os.PathLike[str], entry: Entry | None) -> _Source:
        """Where a name or a path leads; checks a folder."""
        if entry is not None:
            return _Source(entry.hub, entry.title, revision=entry.revision, local=False)
        path = Path(name_or_path)
        if path.is_dir():
            check_folder(path)
            return _Source(str(path), str(path), local=True)
        if isinstance(name_or_path, os.PathLike):  # a name of the hub is a string
            raise GeoattnError(
                f"there is no folder {path}. Get the model first: hf download OWNER/NAME --local-dir {path}, or pass "
                "'OWNER/NAME' as a string, which is a repository of the hub."
            )
        name = str(name_or_path)
        if name.count("/") == 1 and not name.startswith((".", "/", "~")):
            return _Source(name, name, local=False)
        raise GeoattnError(
            f"unknown model {name!r}: expected one of {', '.join(ZOO)}, a folder with config.json and "
            f"model.safetensors, or owner/name of a repository of the hub.{did_you_mean(name, ZOO)}"
        )

    def call(self, load: Any, **options: Any) -> Any:
        """``load(place, ...)`` with the safe options; any failure becomes one line."""
        cached = not self.local and not hub_reachable()
        try:
            with only_cached(cached), _quiet(self.local):
                return load(
                    self.place, revision=self.revision, local_files_only=self.local or cached,
                    trust_remote_code=False, **options,
                )  # fmt: skip
        except Exception as error:
            if cached and isinstance(error, OSError):
                raise GeoattnError(
                    f"{self.title}: the hub cannot be reached for {self.place}, it is not in the cache, and there is "
                    "no such folder: connect, give a folder with config.json and model.safetensors (hf download "
                    f"{self.place} --local-dir FOLDER, on a machine that is connected), or use weights='random'."
                ) from None
            raise GeoattnError(f"cannot load {self.title} from {self.place}: {_one_line(error)}") from None

    def config(self, classes: int | None, changes: dict[str, Any]) -> Any:
        """The configuration, changed."""
        from transformers import AutoConfig, PreTrainedConfig

        if not self.local:
            content, _ = self.call(PreTrainedConfig.get_config_dict)
            check_settings(content, self.title)
            check_code(content, self.title)
        return _changed(self.call(AutoConfig.from_pretrained), classes, changes, self.title)

    def check_size(self, config: Any, classes: int | None, *, bare: bool) -> None:
        """An error of one line for a folder whose model is larger than its weights, and than what may be read."""
        if self.local:
            # Weights may be stored in half the bytes, or in a quarter, of what they take here.
            most = max(read_limit(), 4 * weight_bytes(Path(self.place)))
            check_size(lambda: _from_config(config, classes, bare=bare), self.title, most=most)

    def model(self, classes: int | None, *, bare: bool) -> nn.Module:
        """The model with all its weights."""
        config = self.config(classes, {})
        self.check_size(config, classes, bare=bare)
        build, options = _model_class(config, classes, bare=bare)
        model, report = self.call(
            build.from_pretrained, config=config, use_safetensors=True, ignore_mismatched_sizes=True,
            output_loading_info=True, **options,
        )  # fmt: skip
        self._check_fit(model, report, new_head=classes is not None)
        return model

    def _check_fit(self, model: Any, report: dict[str, Any], *, new_head: bool) -> None:
        """Every weight came from the file, except those of a head that was asked for."""
        body = f"{model.base_model_prefix}."
        wrong = {str(name): "missing" for name in report["missing_keys"]}
        for name, in_file, in_model in report["mismatched_keys"]:
            wrong[name] = f"{tuple(in_file)} in the file, {tuple(in_model)} by the configuration"
        if new_head:
            wrong = {name: why for name, why in wrong.items() if name.startswith(body)}
        if wrong:
            name = min(wrong)
            raise GeoattnError(
                f"{self.title}: {len(wrong)} weights do not fit the configuration of {type(model).__name__}; "
                f"first {name}: {wrong[name]}. Give the config.json that belongs to the weights."
            )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers of torch by ``seed`` within; outside nothing changes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _quiet(local: bool) -> Iterator[None]:
    """No load report (we check ourselves), and no progress bar for what is on the disk."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if local:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _one_line(error: Exception) -> str:
    return str(error).split("\n")[0].strip() or type(error).__name__
