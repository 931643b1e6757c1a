"""The closed boundary to ms-swift: a `RunConfig` goes in, a trained checkpoint comes out.

Every import of swift and every private name of swift, of transformers' trainer and of peft that the trainer
depends on stands in this folder; nothing outside it knows one. `open_run` is the entrance for the rest of the
trainer. The table below lists them: name, why it is used | what breaks without it. It is data: `doctor`
parses it and, like a test, checks each row against the installed packages (ms-swift 4.6, transformers 5.19, peft 0.20).

Notation: `module:name` exists; `(a, b)` it takes these parameters; `["k"]` it has this key; `#name` is set on
instances; `{"k"}` its source handles this key.

Pipeline and arguments:
    swift.arguments:SftArguments(model, model_type, dataset, val_dataset, torch_dtype, attn_impl, tuner_type, strict)
        holds the run's settings under swift's names | no pipeline can be made
    swift.arguments:SftArguments(modules_to_save, target_modules, use_dora, use_liger_kernel)
        checked and extended when offsets are installed | offsets are neither trained nor saved
    swift.arguments:SftArguments{"TENSORBOARD_LOGGING_DIR"}
        set for each run, since swift keeps the first value | TensorBoard's file lies in another run's folder
    swift.arguments:SftArguments#training_args
        resuming and data workers are set on it before training | every run starts anew, in one process
    swift.pipelines.train.sft:SwiftSft._prepare_dataset()
        replaced: our own data sets | swift reads, sorts corners as strings and replaces failing samples at random
    swift.pipelines.train.sft:SwiftSft._prepare_model_tokenizer(kwargs)
        wrapped: a model on the meta device for the dry run | `train --dry-run` needs the weights
    swift.model.register:get_model_processor(return_dummy_model)
        a model without weights | `train --dry-run` needs the weights
    swift.pipelines.train.sft:SwiftSft._get_trainer_kwargs()
        replaced: hands objective and callbacks to our trainer | the trainer has no objective
    swift.pipelines.train.sft:SwiftSft.prepare_model(args, model, template)
        puts LoRA or DoRA on the model for the dry run | `train --dry-run` shows wrong parameters
    swift.pipelines.train.sft:SwiftSft._save_trainer_state{"last_model_checkpoint", "global_step"}
        what `main` returns | the checkpoint to answer with is unknown
    swift.trainers:TrainerFactory.TRAINER_MAPPING["causal_lm"]
        our trainer takes the place of swift's | swift trains its own cross-entropy
    swift.optimizers:optimizers_map["multimodal"]
        our optimizer groups are registered beside swift's | offsets have no rates of their own
    swift.optimizers:optimizers_map["muon"]
        replaced: our Muon | swift fetches code from GitHub and runs it
    swift.optimizers.base:OptimizerCallback.create_optimizer(model)
        extended: Muon takes the groups of swift's AdamW over | training.optimizer: muon cannot be had
    swift.optimizers.base:OptimizerCallback#trainer
        gives the model | training.optimizer: muon cannot be had
    swift.optimizers.multimodal:MultimodalOptimizerCallback.create_optimizer(model)
        extended: offsets move into groups of their own | offsets have no rates of their own
    swift.optimizers.multimodal:MultimodalOptimizerCallback#trainer
        gives the model and the offsets' settings | offsets have no rates of their own
Model and template:
    swift.model:register_model(model_meta)
        adds our model entry | swift's `qwen3_vl` would run code from a checkpoint
    swift.model:MODEL_MAPPING["qwen3_vl"]
        our model entry is a copy of it | Qwen3-VL cannot be loaded
    swift.model:MODEL_MAPPING["qwen3_vl_moe"]
        the same for models of experts | Qwen3-VL-30B-A3B is saved as a dense model
    transformers.models.qwen3_vl.modeling_qwen3_vl:Qwen3VLModelOutputWithPast
        ms-swift's loader imports it | Qwen3-VL cannot be loaded
    swift.model.models.qwen:Qwen3VLLoader.default_trust_remote_code
        set to False | code from a checkpoint is executed
    swift.model.models.qwen:Qwen3VLMoeLoader.default_trust_remote_code
        the same for models of experts | code from a checkpoint is executed
    swift.utils:safe_snapshot_download(model_id_or_path, download_model, use_hf)
        fetches a checkpoint before anything of it is read | a hub id's config is read trustingly
    swift.template:register_template(template_meta)
        adds our template | swift's hard-coded image ids are used
    swift.template:TEMPLATE_MAPPING["qwen3_vl"]
        tells whether ours is registered already | a second run in a process fails
    swift.template.templates.qwen:QwenTemplateMeta(template_type, template_cls, default_system)
        describes our template | no samples can be encoded
    swift.template:Template.init_processor(processor)
        extended: image ids from the model's config | placeholders of another vocabulary stay unexpanded
    swift.template:Template#config
        the model's config, with those ids | placeholders of another vocabulary stay unexpanded
    swift.template:Template.load_images
        set to True: images are opened for our image processor | images are resized by another library
    swift.template:Template.normalize_bbox(inputs)
        replaced: boxes are coordinate tokens already | boxes are scaled twice
    swift.template:Template.replace_tag(media_type, index, inputs)
        replaced: the placeholder without resizing | images are resized by another library
    swift.template:Template._encode(inputs)
        extended: images through the checkpoint's own image processor | training and inference resize differently
    swift.template:Template._extend_tokens(input_ids, labels, loss_scale, replace_idx_list, get_new_tokens, mm_mask)
        expands the image placeholder in ids and labels | images and text do not line up
    swift.template.templates.qwen:Qwen3VLTemplate.create_mm_token_type_ids(input_ids, mm_mask)
        marks image tokens | transformers places images as text
    swift.template.templates.qwen:Qwen3VLTemplate.requires_mm_token_type_ids
        whether they are wanted | transformers places images as text
    swift.template:Template#max_length
        what samples are measured against before the first step | samples that are too long are found in training
    swift.arguments:SftArguments(truncation_strategy)
        says which side of them is cut off | the console does not say what is cut
    swift.template:Template.encode(inputs, return_length)
        a conversation as ids, labels and pixels | no samples can be encoded
    swift.template:Template.data_collator(batch)
        pads samples to a batch; the collator adds object slots | no batches can be made
Trainer:
    swift.trainers:Seq2SeqTrainer.compute_loss(model, inputs, return_outputs, num_items_in_batch)
        replaced: the objective on supervised rows | swift's cross-entropy is trained
    swift.trainers:Seq2SeqTrainer.compute_loss{"compute_loss_func", "loss_scale", "text_position_ids", "channel"}
        what swift puts into a batch and the model does not take | the forward pass fails on unknown arguments
    swift.trainers:Seq2SeqTrainer.get_use_logits_to_keep(default_value)
        replaced: no, the row head keeps the supervised rows | one index is kept for the whole batch
    swift.trainers:Seq2SeqTrainer._get_data_collator(args, template)
        extended: object slots beside the batch | box losses have no boxes
    swift.trainers:Seq2SeqTrainer.get_eval_dataloader(eval_dataset)
        replaced on several ranks: each sample once | evaluation counts some samples twice
    swift.dataloader:BatchSamplerShard(total_samples, batch_size, shuffle, drop_last, data_seed)
        a rank's share of the evaluation | evaluation counts some samples twice
    swift.dataloader:DataLoaderShard(dataset, device)
        its batches, on the rank's device | evaluation counts some samples twice
    transformers:Trainer._get_num_items_in_batch(batch_samples, device)
        replaced: denominators of the global batch | accumulated batches weigh tokens differently
    transformers:Trainer._save_checkpoint(model, trial)
        extended: a list of files, written last, marks a complete checkpoint | a resume may read half a checkpoint
    transformers:Trainer._determine_best_metric(metrics, trial)
        extended: an evaluation that failed changes no best checkpoint | a failed evaluation ends training
    transformers:Trainer.evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        replaced: losses by token and scores of answers, whose failure is left out | a failed evaluation ends training
    transformers:Trainer.prediction_step(model, inputs, prediction_loss_only)
        one batch of the evaluation losses | evaluation losses cannot be taken
    transformers:Trainer._load_optimizer_and_scheduler(checkpoint)
        extended: logged sums go on after a resume | the first log line after a resume differs
    transformers:Trainer.log(logs)
        extended: every loss term, over all ranks | metrics.jsonl holds swift's figures alone
    transformers:Trainer#is_deepspeed_enabled
        whether accelerate has taken DeepSpeed up | a run without DeepSpeed goes unnoticed
    transformers:Trainer#optimizer_cls_and_kwargs
        set to None, to make an optimizer without a trainer | `train --dry-run` shows no rates
    transformers.trainer_utils:PREFIX_CHECKPOINT_DIR
        the name of a checkpoint's folder | checkpoints cannot be marked complete
    transformers.trainer_utils:rotate_checkpoints(output_dir, save_total_limit, best_model_checkpoint)
        older checkpoints go after the new one is complete | a killed run may be left without any
    transformers.integrations.deepspeed:unset_hf_deepspeed_config()
        ends DeepSpeed's hold on loading | the model that answers is loaded in shards
PEFT:
    peft.tuners.tuners_utils:BaseTunerLayer
        a head with LoRA around it | its LoRA is left out of the loss
    peft.utils:ModulesToSaveWrapper#modules_to_save
        the trained copy of a head | the frozen head is used for the loss
    peft.utils:ModulesToSaveWrapper.active_adapters
        which of its copies is in use | the frozen head is used for the loss
"""
